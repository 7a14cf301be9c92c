#include "runtime/train/step_log.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace sixfold::train {

namespace {

using Json = nlohmann::ordered_json;

std::string hexadecimal(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json known(bool is_known, double value) {
  return is_known ? Json(value) : Json(nullptr);
}

/// How fields are named: those of steps are means over them, the others sums over the run.
struct Parts {
  double number;
  std::string suffix;
};
Parts steps_of(const RunSummary& summary) {
  return {static_cast<double>(std::max<int64_t>(summary.num_steps, 1)), "_per_step"};
}

Json comm_rows(const std::vector<comm::CommRow>& rows, const Parts& parts) {
  Json list = Json::array();
  for (const comm::CommRow& row : rows) {
    const std::optional<std::string> algorithm = comm::recorded_algorithm(row.algorithm);
    Json& object = list.emplace_back(Json{{"tag", row.tag},
                                          {"primitive", comm::primitive_name(row.primitive)},
                                          {"algorithm", algorithm ? Json(*algorithm) : Json(nullptr)},
                                          {"backend", row.backend},
                                          {"group_size", row.group_size}});
    const auto put = [&](const char* name, double sum, bool is_known = true) {
      object[name + parts.suffix] = known(is_known, sum / parts.number);
    };
    put("calls", static_cast<double>(row.calls));
    put("bytes", static_cast<double>(row.bytes));
    put("sent_bytes", static_cast<double>(row.sent_bytes), row.counts_links());
    put("predicted_sent_bytes", row.predicted_sent_bytes, row.counts_links());
    put("ms", row.seconds * 1e3);
    put("exposed_ms", row.exposed_seconds * 1e3);
    put("wait_ms", row.wait_seconds * 1e3, row.knows_waits);
    put("exposed_wait_ms", row.exposed_wait_seconds * 1e3, row.knows_waits);
  }
  return list;
}

Json primitive_rows(const RunSummary& summary) {
  const double steps = steps_of(summary).number;
  Json rows = Json::array();
  for (const comm::CommRow& row : by_primitive(summary.comm)) {
    const bool knows_links = row.counts_links() && row.knows_inter;
    rows.push_back(
        {{"primitive", comm::primitive_name(row.primitive)},
         {"backend", row.backend},
         {"calls_per_step", static_cast<double>(row.calls) / steps},
         {"bytes_per_step", static_cast<double>(row.bytes) / steps},
         {"sent_intra_bytes_per_step",
          known(knows_links, static_cast<double>(row.sent_bytes - row.sent_inter_bytes) / steps)},
         {"sent_inter_bytes_per_step", known(knows_links, static_cast<double>(row.sent_inter_bytes) / steps)},
         {"ms_per_step", row.seconds / steps * 1e3},
         {"exposed_ms_per_step", row.exposed_seconds / steps * 1e3},
         {"exposed_wait_ms_per_step", known(row.knows_waits, row.exposed_wait_seconds / steps * 1e3)},
         {"overlap", overlap_share(row.exposed_seconds, row.seconds)}});
  }
  return rows;
}

Json communication(const RunSummary& summary) {
  const double steps = steps_of(summary).number;
  const CommTotals totals = comm_totals(summary);
  return {{"ms_per_step", totals.seconds / steps * 1e3},
          {"exposed_ms_per_step", totals.exposed_seconds / steps * 1e3},
          {"exposed_wait_ms_per_step", known(totals.knows_waits, totals.exposed_wait_seconds / steps * 1e3)},
          {"overlap", overlap_share(totals.exposed_seconds, totals.seconds)}};
}

Json traffic_rows(const RunSummary& summary) {
  Json rows = Json::array();
  for (const TrafficRow& row : summary.traffic) {
    rows.push_back({{"tag", row.tag},
                    {"sent_bytes_per_step", row.sent_bytes},
                    {"predicted_bytes_per_step", row.payload_bytes},
                    {"padding_bytes_per_step", row.padding_bytes}});
  }
  return rows;
}

Json memory_rows(const RunSummary& summary) {
  Json rows = Json::array();
  for (const MemoryRow& row : summary.memory) {
    rows.push_back({{"category", category_name(row.category)},
                    {"peak_bytes", row.peak_bytes},
                    {"predicted_bytes", number_or_null(row.predicted_bytes)}});
  }
  return rows;
}

Json pipeline(const RunSummary& summary) {
  if (!summary.pipeline) return nullptr;
  const parallel::PipelineShape& shape = summary.pipeline->shape;
  return {{"schedule", parallel::pipeline_kind_name(shape.kind)},
          {"stages", shape.num_stages},
          {"virtual_stages", shape.virtual_stages},
          {"micro_batches", shape.num_micro_batches},
          {"bubble", number_or_null(summary.pipeline->bubble)},
          {"bubble_formula", parallel::bubble_formula(shape)}};
}

Json evaluations(const RunSummary& summary) {
  Json rows = Json::array();
  for (const Evaluation& evaluation : summary.evaluations) {
    rows.push_back({{"step", evaluation.step}, {"val_loss", evaluation.loss}});
  }
  return rows;
}

}  // namespace

StepLog::StepLog(const std::filesystem::path& path) : path_(path), file_(path, std::ios::trunc) {
  if (!file_) throw ConfigError("--log " + path.string() + ": cannot be created");
}

void StepLog::step(const StepResult& result) {
  const Json object = {{"step", result.step},
                       {"loss", result.loss},
                       {"grad_norm", result.grad_norm},
                       {"lr", result.lr},
                       {"tokens_per_s", result.tokens_per_second()},
                       {"step_ms", result.seconds * 1e3},
                       {"comm_ms", result.comm_seconds * 1e3},
                       {"exposed_comm_ms", result.exposed_seconds * 1e3},
                       {"exposed_wait_ms", known(result.knows_late, result.late_seconds * 1e3)}};
  line(object.dump());
}

void StepLog::summary(const RunSummary& summary) {
  const Json object = {{"strategy", summary.strategy},
                       {"val_loss", number_or_null(summary.validation_loss())},
                       {"weights_hash", hexadecimal(summary.weights_hash)},
                       {"state_hash", hexadecimal(summary.state_hash)},
                       {"steps", summary.num_steps},
                       {"skipped_steps", summary.num_skipped},
                       {"ranks", summary.num_ranks},
                       {"threads", summary.num_threads},
                       {"parameters", summary.num_parameters},
                       {"tokens_per_s", summary.tokens_per_second},
                       {"step_ms", summary.step_seconds * 1e3},
                       {"mean_step_ms", summary.mean_step_seconds() * 1e3},
                       {"median_step_ms", summary.median_step_seconds * 1e3},
                       {"gemm_gflops", summary.gemm_gflops},
                       {"mfu", summary.mfu()},
                       {"evaluations", evaluations(summary)},
                       {"comm", comm_rows(summary.comm, steps_of(summary))},
                       {"comm_outside", comm_rows(summary.comm_outside, {1, ""})},
                       {"primitives", primitive_rows(summary)},
                       {"communication", communication(summary)},
                       {"traffic", traffic_rows(summary)},
                       {"memory", memory_rows(summary)},
                       {"pipeline", pipeline(summary)},
                       {"resident_bytes", summary.resident_bytes}};
  line(Json{{"summary", object}}.dump());
}

void StepLog::line(const std::string& text) {
  file_ << text << std::endl;
  if (!file_) throw ConfigError("--log " + path_.string() + ": cannot be written (is the disk full?)");
}

}  // namespace sixfold::train
