#include "examples/compare_strategies/comparison.h"

#include <algorithm>

#include "examples/common/outputs.h"
#include "runtime/comm/observe/profile_file.h"
#include "runtime/comm/observe/record_files.h"
#include "runtime/core/log.h"

namespace sixfold::compare_strategies {

namespace {

/// Without the name of the strategy, which stands beside it.
std::string reason_of(const std::string& name, const ConfigError& error) {
  const std::string reason = error.what(), begin = "--strategies " + name + ": ";
  return reason.starts_with(begin) ? reason.substr(begin.size()) : reason;
}

[[noreturn]] void refuse_default_list(const ComparisonPlan& plan, int world_size) {
  std::vector<std::pair<std::string, std::string>> by_reason;  // reason, names
  for (const auto& [name, reason] : plan.left_out) {
    const auto same =
        std::find_if(by_reason.begin(), by_reason.end(), [&](const auto& r) { return r.first == reason; });
    same == by_reason.end() ? void(by_reason.emplace_back(reason, name)) : void(same->second += ", " + name);
  }
  if (by_reason.size() == 1) throw ConfigError(by_reason[0].first);  // the same for all
  std::string text = "nothing to compare with one on " + std::to_string(world_size) + " ranks";
  for (const auto& [reason, names] : by_reason) text += "; " + names + ": " + reason;
  throw ConfigError(text);
}

void plan_default_list(ComparisonPlan& plan, int world_size) {
  for (const std::string& name : default_strategies(world_size)) {
    try {
      plan.strategies.push_back(plan_strategy(parse_strategies(name).front(), plan.options.base, world_size));
    } catch (const ConfigError& error) {
      plan.left_out.emplace_back(name, reason_of(name, error));
    }
  }
  const bool has_several = std::any_of(plan.strategies.begin(), plan.strategies.end(),
                                       [](const PlannedStrategy& strategy) { return !strategy.spec.one_rank; });
  if (plan.strategies.empty() || (world_size > 1 && !has_several)) refuse_default_list(plan, world_size);
}

/// What is the same in other words is compared once.
void plan_given_list(ComparisonPlan& plan, int world_size) {
  for (const StrategySpec& spec : parse_strategies(plan.options.strategies)) {
    PlannedStrategy planned = plan_strategy(spec, plan.options.base, world_size);
    const auto same = std::find_if(plan.strategies.begin(), plan.strategies.end(),
                                   [&](const PlannedStrategy& other) { return is_same_run(planned, other); });
    if (same == plan.strategies.end()) {
      plan.strategies.push_back(std::move(planned));
    } else {
      plan.left_out.emplace_back(spec.name, "the same as " + same->spec.name + ", compared once");
    }
  }
}

void check_outputs(const CompareOptions& options) {
  examples::check_outputs({{"--json", options.json}, {"--html", options.html}},
                          {{"--data", options.base.data}, {"--val-data", options.base.val_data}});
  // Files are written beside and renamed, which takes a folder that can be written to.
  if (!options.json.empty()) examples::check_writable("--json", options.json + ".part");
  if (!options.html.empty()) examples::check_writable("--html", options.html + ".part");
}

std::string text_of(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms a step", ms);
  return text;
}

/// With what it sums up together with sp.
std::vector<std::string> groups_of(const std::string& axis) {
  return axis == "dp" ? std::vector<std::string>{axis, kSharedAxis} : std::vector<std::string>{axis};
}

PlacementRun placement_run(const StrategyRecord& record, const AxesByPlace& place) {
  PlacementRun run;
  run.inside = place.inside.front();
  run.across = place.across.front();
  run.step_ms = record.median_ms;
  std::vector<std::string> all = groups_of(run.inside);
  for (const std::string& axis : groups_of(run.across)) all.push_back(axis);
  run.exposed_steps = record.transfer_steps(all);
  run.inside_exposed_ms = median(record.transfer_steps(groups_of(run.inside)));
  run.across_exposed_ms = median(record.transfer_steps(groups_of(run.across)));
  return run;
}

/// Where the mesh has two axes, one within nodes and one across in one order of ranks, and the other way round in the
/// other: runs that order, too.
void run_other_placement(comm::World& world, const PlannedStrategy& strategy, const train::CorpusSplit& text,
                         Comparison& comparison) {
  const parallel::MeshShape& mesh = strategy.plan.mesh;
  const auto place = [&](RankOrder order) { return place_axes(mesh, ranks_in_order(mesh, order), world.topology()); };
  const AxesByPlace first = place(RankOrder::Innermost), second = place(RankOrder::Outermost);
  const bool is_pair = !strategy.spec.hsdp && first.inside.size() == 1 && first.across.size() == 1;
  if (!is_pair || first.inside != second.across || first.across != second.inside) return;
  const StrategyRecord other = measure(world, strategy, text, RankOrder::Outermost);
  if (world.rank() != 0) return;
  const StrategyRecord& record = comparison.records.back();
  const std::string verdict = comparison.verdicts.back().front().axes.front().name();
  comparison.placements.push_back({record.name, verdict, placement_run(record, first), placement_run(other, second)});
}

}  // namespace

Agreement Placement::agreement() const {
  const PlacementRun& chosen = first.inside == verdict ? first : second;
  const PlacementRun& other = first.inside == verdict ? second : first;
  if (std::min(chosen.exposed_steps.size(), other.exposed_steps.size()) < 2) return Agreement::TooClose;
  if (chosen.upper_quartile() < other.lower_quartile()) return Agreement::Agrees;
  if (other.upper_quartile() < chosen.lower_quartile()) return Agreement::Disagrees;
  return Agreement::TooClose;
}

ComparisonPlan make_comparison_plan(const CompareOptions& options) {
  ComparisonPlan plan;
  plan.options = options;
  check_outputs(options);
  comm::WorldOptions ranks;
  ranks.num_ranks = options.base.ranks;
  const int world_size = comm::planned_world_size(ranks);
  if (!options.has_global_batch) plan.options.base.global_batch = default_global_batch(world_size);
  options.strategies.empty() ? plan_default_list(plan, world_size) : plan_given_list(plan, world_size);
  plan.world = plan.strategies.front().plan.world;
  plan.world.topology = options.base.topology;  // which a run of one rank does not have
  plan.world.comm_log_bytes = comm::kCommLogBytes;
  comm::check_world_options(plan.world);
  if (!options.base.emulate_links.empty()) plan.profiles.push_back(comm::emulated_profile(plan.world));
  if (!options.profile.empty()) plan.profiles.push_back(comm::load_profile(options.profile));
  return plan;
}

AxesByPlace place_axes(const parallel::MeshShape& mesh, const std::vector<int>& ranks, const comm::Topology& topology) {
  struct Axis {
    const char* name;
    int parallel::MeshCoordinates::*coordinate;
    int size;
  };
  using At = parallel::MeshCoordinates;
  const Axis axes[] = {
      {"tp", &At::tp, mesh.tp}, {"sp", &At::sp, mesh.sp}, {"dp", &At::dp, mesh.dp}, {"pp", &At::pp, mesh.pp}};
  AxesByPlace place;
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;
    bool crosses = false;
    for (size_t i = 0; i < ranks.size(); ++i) {
      At first = parallel::mesh_coordinates(mesh, static_cast<int>(i));
      first.*axis.coordinate = 0;
      const int mate = ranks[static_cast<size_t>(parallel::mesh_rank(mesh, first))];
      crosses |= topology.node_of(ranks[i]) != topology.node_of(mate);
    }
    (crosses ? place.across : place.inside).push_back(axis.name);
  }
  return place;
}

std::string no_placements_because(const Comparison& comparison, const ComparisonPlan& plan) {
  if (plan.profiles.empty() || !comparison.placements.empty()) return "";
  const bool emulated = !plan.world.emulate_links.empty();
  if (comparison.num_nodes > 1 && emulated) return "no strategy here has two axes of which either fits into a node";
  return std::string("that takes ") + (emulated ? "" : "--emulate-links and ") + "two nodes, such as --topology 2x2";
}

Comparison compare(comm::World& world, const ComparisonPlan& plan, const train::CorpusSplit& text) {
  Comparison comparison;
  comparison.ranks = std::to_string(world.size()) + (world.size() == 1 ? " rank (" : " ranks (") + world.kind() + ")";
  comparison.nodes = world.topology().to_string();
  comparison.num_nodes = world.topology().num_nodes();
  for (const PlannedStrategy& strategy : plan.strategies) {
    const StrategyRecord record = measure(world, strategy, text);
    if (world.rank() == 0) {
      log_info(record.name + ": " + text_of(record.median_ms));
      std::vector<Verdict>& verdicts = comparison.verdicts.emplace_back();
      for (const comm::Profile& profile : plan.profiles) verdicts.push_back(judge(record, profile));
      comparison.records.push_back(record);
    }
    if (!plan.world.emulate_links.empty()) run_other_placement(world, strategy, text, comparison);
  }
  return comparison;
}

}  // namespace sixfold::compare_strategies
