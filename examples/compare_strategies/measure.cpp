#include "examples/compare_strategies/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "examples/compare_strategies/checks.h"
#include "examples/compare_strategies/step_figures.h"
#include "examples/train_gpt/run.h"
#include "runtime/comm/observe/records.h"

namespace sixfold::compare_strategies {

namespace {

using nlohmann::json;

// Ranks tell the first one what they know as JSON text: their tables have different rows.

using RowKey = std::tuple<std::string, std::string, std::string, std::string, int>;

template <typename Row>
RowKey key_of(const Row& row) {
  return {row.tag, std::string(comm::primitive_name(row.primitive)), std::string(comm::algorithm_name(row.algorithm)),
          row.backend, row.group_size};
}

/// By row, what an operation sends by the algorithm's formula: a mean.
std::map<RowKey, double> formula_per_call(const train::RunSummary& summary) {
  std::map<RowKey, double> bytes;
  for (const comm::CommRow& row : summary.comm) {
    bytes[key_of(row)] = row.predicted_sent_bytes / static_cast<double>(std::max<int64_t>(row.calls, 1));
  }
  return bytes;
}

/// A row in one step, beside what it is to send by the formula.
struct StepRow : RowFigures {
  double formula_bytes = 0;
};
constexpr double StepRow::*kFigures[] = {
    &StepRow::calls,      &StepRow::bytes,   &StepRow::sent_bytes,   &StepRow::ms, &StepRow::sent_inter_bytes,
    &StepRow::exposed_ms, &StepRow::late_ms, &StepRow::formula_bytes};

json comm_of(const comm::RankRecords& records, const RankFigures& figures, const train::RunSummary& summary) {
  const std::map<RowKey, double> formulas = formula_per_call(summary);
  json rows = json::array();
  for (const RankFigures::Row& row : figures.rows) {
    const RowKey key = key_of(records.rows[row.row]);
    const auto formula = formulas.find(key);
    if (formula == formulas.end()) continue;  // after the last step
    json& steps = rows.emplace_back(json{{"key", key}})["steps"];
    for (const RowFigures& figures_of_step : row.steps) {
      const StepRow step{figures_of_step, formula->second * figures_of_step.calls};
      json& values = steps.emplace_back(json::array());
      for (const auto figure : kFigures) values.push_back(step.*figure);
    }
  }
  return rows;
}

std::vector<double> seconds_of(const std::vector<train::StepResult>& steps) {
  std::vector<double> seconds;
  for (const train::StepResult& step : steps) seconds.push_back(step.seconds);
  return seconds;
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

json report_of(const train_gpt::RunResult& result, const comm::RankRecords& records, const RankFigures& figures) {
  json report = {{"comm", comm_of(records, figures, result.summary)},
                 {"peak", result.summary.peak_bytes},
                 {"busy_ms", figures.busy_ms},
                 {"num_complete", figures.num_complete}};
  for (const train::TrafficRow& row : result.summary.traffic) {
    report["traffic"].push_back(
        {{"tag", row.tag}, {"sent", row.sent_bytes}, {"predicted", row.payload_bytes + row.padding_bytes}});
  }
  for (const train::MemoryRow& row : result.summary.memory) {
    report["memory"].push_back({{"category", category_name(row.category)},
                                {"peak", row.peak_bytes},
                                {"predicted", row.predicted_bytes ? json(*row.predicted_bytes) : json(nullptr)}});
  }
  for (const double seconds : seconds_of(result.steps)) report["step_ms"].push_back(1e3 * seconds);
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

/// Steps that count, as far as all ranks' logs are complete: [first, last).
struct CountedSteps {
  size_t first = 0, last = 0;

  size_t count() const { return last - first; }
  /// Of the values of all steps, those that count.
  std::vector<double> of(const std::vector<double>& values) const {
    return {values.begin() + static_cast<std::ptrdiff_t>(first), values.begin() + static_cast<std::ptrdiff_t>(last)};
  }
};
CountedSteps counted_steps(const json& reports) {
  CountedSteps steps;
  steps.last = reports[0]["num_complete"];
  for (const json& report : reports) steps.last = std::min(steps.last, report["num_complete"].get<size_t>());
  if (steps.last == 0) throw std::runtime_error("a step has more operations than the log of a rank has room for");
  steps.first = first_counted_step(steps.last);
  return steps;
}

/// Of each step, the mean of the ranks.
std::vector<double> mean_of_ranks(const json& reports, const char* key) {
  std::vector<double> means(reports[0][key].size());
  for (const json& report : reports) {
    for (size_t i = 0; i < means.size(); ++i) means[i] += report[key][i].get<double>();
  }
  for (double& mean : means) mean /= static_cast<double>(reports.size());
  return means;
}

/// Of each row and step, the mean of the ranks.
std::map<RowKey, std::vector<StepRow>> merged_rows(const json& reports) {
  std::map<RowKey, std::vector<StepRow>> rows;
  const double share = 1.0 / static_cast<double>(reports.size());
  for (const json& report : reports) {
    for (const json& row : report["comm"]) {
      std::vector<StepRow>& steps = rows[row["key"].get<RowKey>()];
      steps.resize(row["steps"].size());
      for (size_t i = 0; i < steps.size(); ++i) {
        for (size_t f = 0; f < std::size(kFigures); ++f) {
          steps[i].*kFigures[f] += share * row["steps"][i][f].get<double>();
        }
      }
    }
  }
  return rows;
}

CommEntry entry_of(const RowKey& key, const std::vector<StepRow>& steps, const CountedSteps& counted) {
  const auto values = [&](double StepRow::*figure) {
    std::vector<double> all;
    for (const StepRow& step : steps) all.push_back(step.*figure);
    return counted.of(all);
  };
  CommEntry entry;
  std::tie(entry.tag, entry.primitive, entry.algorithm, entry.backend, entry.group_size) = key;
  const bool counts_links = entry.backend == "own";
  const auto known = [&](double StepRow::*figure) {
    return counts_links ? std::optional(median(values(figure))) : std::nullopt;
  };
  entry.calls = median(values(&StepRow::calls));
  entry.bytes = median(values(&StepRow::bytes));
  entry.sent_bytes = known(&StepRow::sent_bytes);
  entry.sent_inter_bytes = known(&StepRow::sent_inter_bytes);
  entry.formula_bytes = known(&StepRow::formula_bytes);
  entry.ms = median(values(&StepRow::ms));
  entry.exposed_ms = median(values(&StepRow::exposed_ms));
  entry.exposed_steps = values(&StepRow::exposed_ms);
  const std::vector<double> late = values(&StepRow::late_ms);
  if (counts_links && std::all_of(late.begin(), late.end(), [](double ms) { return ms >= 0; })) entry.late_steps = late;
  entry.late_ms = entry.late_steps.empty() ? std::nullopt : std::optional(median(late));
  return entry;
}

/// The rows, and what they are together.
void add_comm(const json& reports, const CountedSteps& counted, StrategyRecord& record) {
  for (const auto& [key, steps] : merged_rows(reports)) record.comm.push_back(entry_of(key, steps, counted));
  std::vector<double> exposed(counted.count()), late(counted.count());
  for (const CommEntry& entry : record.comm) {
    for (size_t i = 0; i < exposed.size(); ++i) {
      exposed[i] += entry.exposed_steps[i];
      late[i] += entry.late_steps.empty() ? 0 : entry.late_steps[i];
    }
  }
  record.exposed_ms = median(exposed);
  const bool knows_late = std::none_of(record.comm.begin(), record.comm.end(),
                                       [](const CommEntry& entry) { return entry.late_steps.empty(); });
  record.late_ms = knows_late ? std::optional(median(late)) : std::nullopt;
  record.comm_ms = median(counted.of(mean_of_ranks(reports, "busy_ms")));
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

/// The step, from 1, that took most nearly as long as the median of those that count.
int typical_step(const std::vector<double>& seconds, size_t num_complete) {
  const auto begin = seconds.begin() + static_cast<std::ptrdiff_t>(first_counted_step(num_complete));
  const auto end = seconds.begin() + static_cast<std::ptrdiff_t>(num_complete);
  const double typical = median({begin, end});
  const auto nearest =
      std::min_element(begin, end, [&](double a, double b) { return std::abs(a - typical) < std::abs(b - typical); });
  return static_cast<int>(nearest - seconds.begin()) + 1;
}

StrategyRecord record_of(const PlannedStrategy& strategy, const json& reports, const train_gpt::RunResult& first) {
  const CountedSteps counted = counted_steps(reports);
  StrategyRecord record;
  record.name = strategy.spec.name;
  record.mesh = strategy.plan.mesh;
  record.num_ranks = static_cast<int>(reports.size());
  record.micro_batches = strategy.plan.trainer.share.num_micro_batches();
  record.overlap = strategy.spec.overlap;
  record.reduces_each_micro_batch = strategy.plan.strategy.deterministic;
  for (const train::StepResult& step : first.steps) record.losses.push_back(step.loss);
  record.step_ms = mean_of_ranks(reports, "step_ms");
  record.num_counted = counted.count();
  record.median_ms = median(counted.of(record.step_ms));
  const double tokens = static_cast<double>(first.steps.back().num_tokens);
  record.tokens_per_s = record.median_ms > 0 ? 1e3 * tokens / record.median_ms : 0;
  record.flops = first.summary.flops_per_token * tokens / static_cast<double>(reports.size());
  record.num_parameters = first.summary.num_parameters;
  add_comm(reports, counted, record);
  add_traffic(reports, record);
  add_memory(reports, record);
  add_timelines(reports, record);
  return record;
}

/// Why one rank alone cannot be planned; empty where it can.
std::string complaint_about_one(const train_gpt::Options& base, int world_size) {
  try {
    plan_strategy(parse_strategies("one").front(), base, world_size);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

}  // namespace

PlannedStrategy plan_strategy(const StrategySpec& spec, const train_gpt::Options& base, int world_size) {
  train_gpt::Options options = options_of(spec, base, world_size);
  options.quiet = true;
  options.sample = 0;
  options.val_fraction = 0;
  try {
    return {spec, train_gpt::make_plan(options, spec.one_rank ? 1 : world_size)};
  } catch (const ConfigError& error) {
    if (spec.one_rank || complaint_about_one(base, world_size) == error.what()) throw;
    throw ConfigError(in_words_of_strategies(spec, options, error.what()));
  }
}

bool is_same_run(const PlannedStrategy& a, const PlannedStrategy& b) {
  const auto key = [](const PlannedStrategy& strategy) {
    const train_gpt::Plan& plan = strategy.plan;
    return std::tuple(plan.mesh.pp, plan.mesh.dp, plan.mesh.sp, plan.mesh.tp, plan.strategy.zero, plan.strategy.hsdp,
                      plan.strategy.overlap, plan.tp.sequence_parallel, plan.pipeline.kind,
                      plan.pipeline.num_micro_batches, plan.model.recompute);
  };
  return key(a) == key(b);
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
    const comm::RankRecords records = world.comm_log()->records(world.rank());
    const std::vector<double> seconds = seconds_of(result.steps);
    const std::vector<comm::Interval> windows = step_windows(records, seconds);
    const RankFigures figures = figures_of(records, windows);
    if (world.rank() == 0) step = typical_step(seconds, figures.num_complete);
    group.broadcast({&step, 1, DType::I32}, 0, {.tag = "compare"}).wait();
    json of_rank = report_of(result, records, figures);
    const comm::Interval window = windows.at(static_cast<size_t>(step) - 1);
    of_rank["timeline"] = timeline_json(timeline_of(records, step, window, strategy.plan.mesh), offset.seconds);
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
