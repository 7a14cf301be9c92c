#include "examples/compare_strategies/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "examples/compare_strategies/checks.h"
#include "examples/train_gpt/run.h"

namespace sixfold::compare_strategies {

namespace {

using nlohmann::json;

// Ranks tell the first one what they know as JSON text: their tables have different rows.

json comm_of(const train::RunSummary& summary) {
  const double steps = static_cast<double>(summary.num_steps);
  json rows = json::array();
  for (const comm::CommRow& row : summary.comm) {
    if (row.tag == "dp.params" || row.group_size == 1) continue;  // at the start, not in a step; to nobody
    rows.push_back({{"tag", row.tag},
                    {"primitive", comm::primitive_name(row.primitive)},
                    {"algorithm", comm::algorithm_name(row.algorithm)},
                    {"backend", row.backend},
                    {"group_size", row.group_size},
                    {"calls", static_cast<double>(row.calls) / steps},
                    {"bytes", static_cast<double>(row.bytes) / steps},
                    {"sent", static_cast<double>(row.sent_bytes) / steps},
                    {"formula", row.predicted_sent_bytes / steps},
                    {"ms", 1e3 * row.seconds / steps},
                    {"exposed_ms", 1e3 * row.exposed_seconds / steps}});
  }
  return rows;
}

json report_of(const train_gpt::RunResult& result) {
  json report = {{"comm", comm_of(result.summary)}, {"peak", result.summary.peak_bytes}};
  for (const train::TrafficRow& row : result.summary.traffic) {
    report["traffic"].push_back(
        {{"tag", row.tag}, {"sent", row.sent_bytes}, {"predicted", row.payload_bytes + row.padding_bytes}});
  }
  for (const train::MemoryRow& row : result.summary.memory) {
    report["memory"].push_back({{"category", category_name(row.category)},
                                {"peak", row.peak_bytes},
                                {"predicted", row.predicted_bytes ? json(*row.predicted_bytes) : json(nullptr)}});
  }
  for (const train::StepResult& step : result.steps) {
    report["steps"].push_back({{"ms", 1e3 * step.seconds},
                               {"compute_ms", 1e3 * step.compute_seconds},
                               {"comm_ms", 1e3 * step.comm_seconds},
                               {"exposed_ms", 1e3 * step.exposed_seconds}});
  }
  return report;
}

/// The text of every rank, on all ranks.
std::vector<std::string> gather_texts(comm::Communicator& group, const std::string& text) {
  const auto size = static_cast<size_t>(group.size());
  std::vector<int64_t> lengths(size);
  const auto length = static_cast<int64_t>(text.size());
  group.all_gather({&length, 1, DType::I64}, {lengths.data(), size, DType::I64}, {.tag = "compare"}).wait();
  const std::vector<size_t> counts(lengths.begin(), lengths.end());
  std::string all(std::accumulate(counts.begin(), counts.end(), size_t{0}), '\0');
  group
      .all_gather({text.data(), text.size(), DType::U8}, {all.data(), all.size(), DType::U8}, counts,
                  {.tag = "compare"})
      .wait();
  std::vector<std::string> texts;
  size_t start = 0;
  for (size_t count : counts) {
    texts.push_back(all.substr(start, count));
    start += count;
  }
  return texts;
}

void add_comm(const json& reports, StrategyRecord& record) {
  std::map<std::tuple<std::string, std::string, std::string, std::string, int>, CommEntry> sums;
  const double share = 1.0 / static_cast<double>(reports.size());
  for (const json& report : reports) {
    for (const json& row : report["comm"]) {
      CommEntry& entry = sums[{row["tag"], row["primitive"], row["algorithm"], row["backend"], row["group_size"]}];
      entry.tag = row["tag"];
      entry.primitive = row["primitive"];
      entry.algorithm = row["algorithm"];
      entry.backend = row["backend"];
      entry.group_size = row["group_size"];
      entry.calls += share * row["calls"].get<double>();
      entry.bytes += share * row["bytes"].get<double>();
      entry.sent_bytes += share * row["sent"].get<double>();
      entry.formula_bytes += share * row["formula"].get<double>();
      entry.ms += share * row["ms"].get<double>();
      entry.exposed_ms += share * row["exposed_ms"].get<double>();
    }
  }
  for (auto& [key, entry] : sums) record.comm.push_back(std::move(entry));
}

void add_traffic(const json& reports, StrategyRecord& record) {
  std::map<std::string, TrafficEntry> sums;
  const double share = 1.0 / static_cast<double>(reports.size());
  for (const json& report : reports) {
    if (!report.contains("traffic")) continue;
    for (const json& row : report["traffic"]) {
      TrafficEntry& entry = sums[row["tag"]];
      entry.tag = row["tag"];
      entry.sent_bytes += share * row["sent"].get<double>();
      entry.predicted_bytes += share * row["predicted"].get<double>();
    }
  }
  for (auto& [tag, entry] : sums) record.traffic.push_back(std::move(entry));
}

void add_memory(const json& reports, StrategyRecord& record) {
  for (size_t c = 0; c < kNumCategories; ++c) {
    MemoryEntry& entry = record.memory.emplace_back();
    entry.category = category_name(kAllCategories[c]);
    for (const json& report : reports) {
      const json& row = report["memory"][c];
      const double peak = row["peak"];
      entry.peak_bytes = std::max(entry.peak_bytes, peak);
      if (row["predicted"].is_null()) continue;
      const double predicted = row["predicted"];
      entry.predicted_bytes = std::max(entry.predicted_bytes.value_or(0), predicted);
      if (peak != predicted) entry.worst = std::max(entry.worst, std::abs(peak - predicted) / std::max(predicted, 1.0));
    }
  }
  for (const json& report : reports) record.peak_bytes = std::max(record.peak_bytes, report["peak"].get<double>());
}

/// The median, over the steps that count, of the mean of all ranks.
double median_of_steps(const json& reports, const char* key) {
  const size_t num_steps = reports[0]["steps"].size();
  std::vector<double> means;
  for (size_t step = num_steps > 1 ? 1 : 0; step < num_steps; ++step) {
    double sum = 0;
    for (const json& report : reports) sum += report["steps"][step][key].get<double>();
    means.push_back(sum / static_cast<double>(reports.size()));
  }
  return median(std::move(means));
}

StrategyRecord record_of(const PlannedStrategy& strategy, const json& reports, const train_gpt::RunResult& first) {
  StrategyRecord record;
  record.name = strategy.spec.name;
  record.mesh = strategy.plan.mesh;
  record.num_ranks = static_cast<int>(reports.size());
  record.micro_batches = strategy.plan.trainer.share.num_micro_batches();
  record.overlap = strategy.spec.overlap;
  for (const train::StepResult& step : first.steps) {
    record.losses.push_back(step.loss);
    record.step_ms.push_back(1e3 * step.seconds);
  }
  record.median_ms = median_of_steps(reports, "ms");
  record.compute_ms = median_of_steps(reports, "compute_ms");
  record.comm_ms = median_of_steps(reports, "comm_ms");
  record.exposed_ms = median_of_steps(reports, "exposed_ms");
  const double tokens = static_cast<double>(first.steps.back().num_tokens);
  record.tokens_per_s = record.median_ms > 0 ? 1e3 * tokens / record.median_ms : 0;
  record.flops = first.summary.flops_per_token * tokens / static_cast<double>(reports.size());
  record.num_parameters = first.summary.num_parameters;
  add_comm(reports, record);
  add_traffic(reports, record);
  add_memory(reports, record);
  return record;
}

}  // namespace

PlannedStrategy plan_strategy(const StrategySpec& spec, const train_gpt::Options& base, int world_size) {
  train_gpt::Options options = options_of(spec, base, world_size);
  options.quiet = true;
  options.sample = 0;
  options.val_fraction = 0;
  return {spec, train_gpt::make_plan(options, spec.one_rank ? 1 : world_size)};
}

std::vector<int> ranks_in_order(const parallel::MeshShape& mesh, RankOrder order) {
  const int size = mesh.pp * mesh.dp * mesh.sp * mesh.tp;
  std::vector<int> ranks(static_cast<size_t>(size));
  for (int place = 0; place < size; ++place) {
    const parallel::MeshCoordinates at = parallel::mesh_coordinates(mesh, place);
    const int outermost = ((at.tp * mesh.sp + at.sp) * mesh.dp + at.dp) * mesh.pp + at.pp;
    ranks[static_cast<size_t>(place)] = order == RankOrder::Innermost ? place : outermost;
  }
  return ranks;
}

StrategyRecord measure(comm::World& world, const PlannedStrategy& strategy, const train::CorpusSplit& text,
                       RankOrder order) {
  const std::vector<int> ranks = ranks_in_order(strategy.plan.mesh, order);
  const auto place = std::find(ranks.begin(), ranks.end(), world.rank());
  const bool takes_part = place != ranks.end();
  comm::Communicator group = world.group().split(takes_part ? 0 : -1, static_cast<int>(place - ranks.begin()));
  train_gpt::RunResult result;
  std::string report;
  if (takes_part) {
    // The others, if any, wait for one rank that does their work.
    std::optional<comm::World::Section> alone;
    if (group.size() < world.size()) alone.emplace(world, "the run of " + strategy.spec.name);
    world.memory().reset_peaks();
    result = train_gpt::run_rank(world, group, strategy.plan, text);
    report = report_of(result).dump();
  }
  json reports = json::array();
  for (const std::string& of_rank : gather_texts(world.group(), report)) {
    if (!of_rank.empty()) reports.push_back(json::parse(of_rank));
  }
  return world.rank() == 0 ? record_of(strategy, reports, result) : StrategyRecord{};
}

}  // namespace sixfold::compare_strategies
