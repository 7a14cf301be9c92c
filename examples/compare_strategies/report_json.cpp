#include "examples/compare_strategies/report_json.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"

namespace sixfold::compare_strategies {

namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json comm_json(const StrategyRecord& record) {
  Json rows = Json::array();
  for (const CommEntry& entry : record.comm) {
    rows.push_back({{"tag", entry.tag},
                    {"axis", axis_of_tag(entry.tag, record.mesh)},
                    {"primitive", entry.primitive},
                    {"algorithm", entry.algorithm == "auto" ? Json(nullptr) : Json(entry.algorithm)},
                    {"backend", entry.backend},
                    {"group_size", entry.group_size},
                    {"calls", entry.calls},
                    {"bytes", entry.bytes},
                    {"sent_bytes", or_null(entry.sent_bytes)},
                    {"sent_inter_bytes", or_null(entry.sent_inter_bytes)},
                    {"formula_bytes", or_null(entry.formula_bytes)},
                    {"ms", entry.ms},
                    {"exposed_ms", entry.exposed_ms},
                    {"late_ms", or_null(entry.late_ms)}});
  }
  return rows;
}

Json traffic_json(const StrategyRecord& record) {
  Json rows = Json::array();
  for (const TrafficEntry& entry : record.traffic) {
    rows.push_back({{"tag", entry.tag}, {"sent_bytes", entry.sent_bytes}, {"predicted_bytes", entry.predicted_bytes}});
  }
  return rows;
}

Json memory_json(const StrategyRecord& record) {
  Json rows = Json::array();
  for (const MemoryEntry& entry : record.memory) {
    rows.push_back({{"category", entry.category},
                    {"peak_bytes", entry.peak_bytes},
                    {"predicted_bytes", or_null(entry.predicted_bytes)},
                    {"worst", entry.worst}});
  }
  return rows;
}

Json times_json(const LinkTimes& times) {
  return {{"all_ms", times.all_ms}, {"critical_ms", times.critical_ms}, {"waited_ms", times.waited_ms}};
}

Json verdict_json(const Verdict& verdict) {
  Json axes = Json::array();
  for (const AxisCost& axis : verdict.axes) {
    axes.push_back({{"axis", axis.axis},
                    {"group_size", axis.group_size},
                    {"messages", axis.messages},
                    {"sent_mb", or_null(axis.sent_mb)},
                    {"largest_mb", axis.largest_mb},
                    {"critical_mb", axis.critical_mb},
                    {"critical_share", axis.critical_share},
                    {"link", link_name(axis.link)},
                    {"inside", times_json(axis.intra)},
                    {"across", times_json(axis.inter)},
                    {"penalty_ms", axis.penalty_ms()},
                    {"measured_exposed_ms", axis.measured_exposed_ms}});
  }
  return {{"profile", verdict.profile}, {"compute_ms", verdict.compute_ms}, {"text", verdict.text()}, {"axes", axes}};
}

/// Milliseconds to the microsecond, which is what clocks tell.
double rounded_ms(double seconds) {
  return std::round(seconds * 1e6) / 1e3;
}

Json timeline_json(const StrategyRecord& record) {
  Json ranks = Json::array();
  for (size_t r = 0; r < record.timelines.size(); ++r) {
    const RankTimeline& timeline = record.timelines[r];
    Json tracks = Json::object();
    for (const Track& track : timeline.tracks) {
      Json& intervals = tracks[track.kind] = Json::array();
      for (const comm::Interval& i : track.intervals) {
        intervals.push_back({rounded_ms(i.start), rounded_ms(i.end)});
      }
    }
    ranks.push_back({{"rank", r},
                     {"start_ms", rounded_ms(timeline.start)},
                     {"end_ms", rounded_ms(timeline.end)},
                     {"tracks", tracks}});
  }
  return {{"step", record.timeline_step}, {"ranks", ranks}};
}

Json strategy_json(const StrategyRecord& record, const std::vector<Verdict>& verdicts) {
  Json steps = Json::array(), primitives = Json::array(), judged = Json::array();
  for (size_t i = 0; i < record.losses.size(); ++i) {
    steps.push_back({{"loss", record.losses[i]}, {"ms", record.step_ms[i]}});
  }
  for (const PrimitiveSum& sum : record.by_primitive()) {
    primitives.push_back({{"primitive", sum.primitive},
                          {"calls", sum.calls},
                          {"sent_bytes", or_null(sum.sent_bytes)},
                          {"sent_inter_bytes", or_null(sum.sent_inter_bytes)}});
  }
  for (const Verdict& verdict : verdicts) judged.push_back(verdict_json(verdict));
  const PrimitiveSum all = record.all_primitives();
  return {{"name", record.name},
          {"pp", record.mesh.pp},
          {"dp", record.mesh.dp},
          {"sp", record.mesh.sp},
          {"tp", record.mesh.tp},
          {"ranks", record.num_ranks},
          {"micro_batches", record.micro_batches},
          {"step_ms", record.median_ms},
          {"tokens_per_s", record.tokens_per_s},
          {"exposed_ms", record.exposed_ms},
          {"late_ms", or_null(record.late_ms)},
          {"comm_ms", record.comm_ms},
          {"exposed_share", record.exposed_share()},
          {"overlap_share", all.calls > 0 ? Json(record.overlap_share()) : Json(nullptr)},
          {"counted_steps", record.num_counted},
          {"steps", steps},
          {"loss", record.losses.back()},
          {"by_primitive", primitives},
          {"calls", all.calls},
          {"sent_bytes", or_null(all.sent_bytes)},
          {"sent_inter_bytes", or_null(all.sent_inter_bytes)},
          {"comm", comm_json(record)},
          {"traffic", traffic_json(record)},
          {"differing_bytes", record.counts_links() ? Json(differing_bytes(record)) : Json(nullptr)},
          {"memory", memory_json(record)},
          {"peak_bytes", record.peak_bytes},
          {"differing_memory", differing_memory(record)},
          {"verdicts", judged},
          {"timeline", timeline_json(record)}};
}

Json checks_json(const Comparison& comparison) {
  Json losses = Json::array();
  for (const LossDifference& d : comparison.differing()) {
    losses.push_back({{"strategy", d.strategy}, {"step", d.step}, {"loss", d.loss}, {"others", d.others}});
  }
  bool bytes_equal = true, memory_within = true;
  for (const StrategyRecord& record : comparison.records) {
    bytes_equal &= differing_bytes(record).empty();
    memory_within &= differing_memory(record).empty();
  }
  const Json bytes = counts_links(comparison.records) ? Json(bytes_equal) : Json(nullptr);
  return {{"losses_equal", losses.empty()},
          {"largest_loss_distance", largest_loss_distance(comparison.records)},
          {"loss_tolerance", kLossTolerance},
          {"differing_losses", losses},
          {"bytes_equal", bytes},
          {"memory_within", memory_within},
          {"memory_tolerance", kMemoryTolerance}};
}

Json placements_json(const Comparison& comparison) {
  Json rows = Json::array();
  for (const Placement& placement : comparison.placements) {
    Json runs = Json::array();
    for (const PlacementRun* run : {&placement.first, &placement.second}) {
      runs.push_back({{"inside", run->inside},
                      {"across", run->across},
                      {"step_ms", run->step_ms},
                      {"exposed_ms", run->exposed_ms()},
                      {"exposed_quartiles", {run->lower_quartile(), run->upper_quartile()}},
                      {"inside_exposed_ms", run->inside_exposed_ms},
                      {"across_exposed_ms", run->across_exposed_ms}});
    }
    const Agreement agreement = placement.agreement();
    rows.push_back({{"strategy", placement.strategy},
                    {"verdict", placement.verdict},
                    {"agrees", agreement == Agreement::TooClose ? Json(nullptr) : Json(agreement == Agreement::Agrees)},
                    {"runs", runs}});
  }
  return rows;
}

}  // namespace

Json json_of(const Comparison& comparison, const ComparisonPlan& plan) {
  const train_gpt::Options& base = plan.options.base;
  const models::GptConfig& model = plan.model();
  Json strategies = Json::array(), left_out = Json::array();
  const std::string no_placements = no_placements_because(comparison, plan);
  for (size_t r = 0; r < comparison.records.size(); ++r) {
    strategies.push_back(strategy_json(comparison.records[r], comparison.verdicts[r]));
  }
  for (const auto& [name, reason] : plan.left_out) left_out.push_back({{"strategy", name}, {"reason", reason}});
  return {{"ranks", comparison.ranks},
          {"nodes", comparison.nodes},
          {"threads_per_rank", plan.strategies.front().plan.num_threads},
          {"model",
           {{"layers", model.num_layers},
            {"dim", model.dim},
            {"heads", model.num_heads},
            {"seq_len", model.seq_len},
            {"vocabulary", model.vocab_size},
            {"parameters", comparison.records.front().num_parameters}}},
          {"data", base.data},
          {"global_batch", base.global_batch},
          {"steps", base.steps},
          {"seed", base.seed},
          {"emulate_links", base.emulate_links.empty() ? Json(nullptr) : Json(base.emulate_links)},
          {"checks", checks_json(comparison)},
          {"strategies", strategies},
          {"left_out", left_out},
          {"placements", placements_json(comparison)},
          {"no_placements", no_placements.empty() ? Json(nullptr) : Json(no_placements)}};
}

void write_file(const std::string& flag, const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished, std::ios::trunc);
  file << text;
  file.close();
  std::error_code failed;
  if (file) std::filesystem::rename(unfinished, path, failed);
  if (file && !failed) return;
  std::filesystem::remove(unfinished, failed);
  throw ConfigError(flag + " " + path + ": cannot be written (is the disk full?)");
}

}  // namespace sixfold::compare_strategies
