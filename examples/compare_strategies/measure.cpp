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
#include "runtime/comm/observe/records.h"

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
                    {"sent_inter", static_cast<double>(row.sent_inter_bytes) / steps},
                    {"formula", row.predicted_sent_bytes / steps},
                    {"ms", 1e3 * row.seconds / steps},
                    {"exposed_ms", 1e3 * row.exposed_seconds / steps},
                    {"late_ms", 1e3 * row.exposed_wait_seconds / steps}});
  }
  return rows;
}

/// By the clock of rank 0, which is `offset_s` ahead of this rank's.
json timeline_json(const RankTimeline& timeline, double offset_s) {
  json tracks = json::object();
  for (const Track& track : timeline.tracks) {
    for (const comm::Interval& interval : track.intervals) {
      tracks[track.kind].push_back({interval.start + offset_s, interval.end + offset_s});
    }
  }
  return {{"start", timeline.start + offset_s}, {"end", timeline.end + offset_s}, {"tracks", tracks}};
}

json report_of(const train_gpt::RunResult& result) {
  const train::CommTotals totals = train::comm_totals(result.summary);
  const double to_ms = 1e3 / static_cast<double>(result.summary.num_steps);
  json report = {{"comm", comm_of(result.summary)},
                 {"peak", result.summary.peak_bytes},
                 {"comm_ms", to_ms * totals.seconds},
                 {"comm_exposed_ms", to_ms * totals.exposed_seconds}};
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
    report["steps"].push_back(
        {{"ms", 1e3 * step.seconds}, {"exposed_ms", 1e3 * step.exposed_seconds}, {"late_ms", 1e3 * step.late_seconds}});
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
      entry.sent_inter_bytes += share * row["sent_inter"].get<double>();
      entry.formula_bytes += share * row["formula"].get<double>();
      entry.ms += share * row["ms"].get<double>();
      entry.exposed_ms += share * row["exposed_ms"].get<double>();
      entry.late_ms += share * row["late_ms"].get<double>();
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

/// From the moment when the first rank begins the step.
void add_timelines(const json& reports, StrategyRecord& record) {
  double first = std::numeric_limits<double>::infinity();
  for (const json& report : reports) first = std::min(first, report["timeline"]["start"].get<double>());
  for (const json& report : reports) {
    RankTimeline& timeline = record.timelines.emplace_back();
    timeline.start = report["timeline"]["start"].get<double>() - first;
    timeline.end = report["timeline"]["end"].get<double>() - first;
    for (const auto& [kind, intervals] : report["timeline"]["tracks"].items()) {
      Track& track = timeline.tracks.emplace_back();
      track.kind = kind;
      for (const json& interval : intervals) {
        track.intervals.push_back({interval[0].get<double>() - first, interval[1].get<double>() - first});
      }
    }
  }
}

/// The step, from 1, that took most nearly as long as their median, which leaves out the first.
int typical_step(const std::vector<train::StepResult>& steps) {
  std::vector<double> seconds;
  for (const train::StepResult& step : steps) seconds.push_back(step.seconds);
  const size_t first = steps.size() > 1 ? 1 : 0;
  const double typical = median({seconds.begin() + static_cast<std::ptrdiff_t>(first), seconds.end()});
  const auto nearest =
      std::min_element(seconds.begin() + static_cast<std::ptrdiff_t>(first), seconds.end(),
                       [&](double a, double b) { return std::abs(a - typical) < std::abs(b - typical); });
  return static_cast<int>(nearest - seconds.begin()) + 1;
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
  record.exposed_ms = median_of_steps(reports, "exposed_ms");
  record.late_ms = median_of_steps(reports, "late_ms");
  for (const json& report : reports) {
    record.comm_ms += report["comm_ms"].get<double>() / static_cast<double>(reports.size());
    record.comm_exposed_ms += report["comm_exposed_ms"].get<double>() / static_cast<double>(reports.size());
  }
  const double tokens = static_cast<double>(first.steps.back().num_tokens);
  record.tokens_per_s = record.median_ms > 0 ? 1e3 * tokens / record.median_ms : 0;
  record.flops = first.summary.flops_per_token * tokens / static_cast<double>(reports.size());
  record.num_parameters = first.summary.num_parameters;
  add_comm(reports, record);
  add_traffic(reports, record);
  add_memory(reports, record);
  add_timelines(reports, record);
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
  const comm::ClockOffset offset = comm::measure_clock_offset(world);
  const std::vector<int> ranks = ranks_in_order(strategy.plan.mesh, order);
  const auto place = std::find(ranks.begin(), ranks.end(), world.rank());
  const bool takes_part = place != ranks.end();
  comm::Communicator group = world.group().split(takes_part ? 0 : -1, static_cast<int>(place - ranks.begin()));
  train_gpt::RunResult result;
  std::string report;
  int32_t step = 0;  // of the timeline
  if (takes_part) {
    // The others, if any, wait for one rank that does their work.
    std::optional<comm::World::Section> alone;
    if (group.size() < world.size()) alone.emplace(world, "the run of " + strategy.spec.name);
    world.memory().reset_peaks();
    result = train_gpt::run_rank(world, group, strategy.plan, text);
    if (world.rank() == 0) step = typical_step(result.steps);
    group.broadcast({&step, 1, DType::I32}, 0, {.tag = "compare"}).wait();
    const comm::RankRecords records = world.comm_log()->records(world.rank());
    const double seconds = result.steps.at(static_cast<size_t>(step) - 1).seconds;
    json of_rank = report_of(result);
    of_rank["timeline"] = timeline_json(timeline_of(records, step, seconds, strategy.plan.mesh), offset.seconds);
    report = of_rank.dump();
  }
  json reports = json::array();
  for (const std::string& of_rank : gather_texts(world.group(), report)) {
    if (!of_rank.empty()) reports.push_back(json::parse(of_rank));
  }
  if (world.rank() != 0) return {};
  StrategyRecord record = record_of(strategy, reports, result);
  record.timeline_step = step;
  return record;
}

}  // namespace sixfold::compare_strategies
