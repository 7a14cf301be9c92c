#include "examples/compare_strategies/comparison.h"

#include "examples/common/resources.h"
#include "runtime/comm/observe/profile_file.h"
#include "runtime/core/log.h"

namespace sixfold::compare_strategies {

namespace {

void plan_default_list(ComparisonPlan& plan, int world_size) {
  for (const std::string& name : default_strategies(world_size)) {
    try {
      plan.strategies.push_back(plan_strategy(parse_strategies(name).front(), plan.options.base, world_size));
    } catch (const ConfigError& error) {
      plan.left_out.emplace_back(name, error.what());
    }
  }
  if (plan.strategies.empty()) throw ConfigError(plan.left_out.front().second);
}

void check_outputs(const CompareOptions& options) {
  examples::check_writable("--json", options.json);
  examples::check_writable("--html", options.html);
  if (!options.json.empty() && options.json == options.html) {
    throw ConfigError("--json and --html " + options.json + ": are one file");
  }
}

std::string text_of(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms a step", ms);
  return text;
}

/// Without waits for late ranks, which no link would make shorter.
double exposed_ms_of(const StrategyRecord& record, const std::string& axis) {
  double sum = 0;
  for (const CommEntry& entry : record.comm) {
    const std::string of_tag = axis_of_tag(entry.tag, record.mesh);
    if (of_tag == axis || (axis == "dp" && of_tag == kSharedAxis)) sum += entry.exposed_ms - entry.late_ms;
  }
  return sum;
}

PlacementRun placement_run(const StrategyRecord& record, const AxesByPlace& place) {
  const std::string inside = place.inside.front(), across = place.across.front();
  return {inside,
          across,
          record.median_ms,
          record.exposed_ms - record.late_ms,
          exposed_ms_of(record, inside),
          exposed_ms_of(record, across)};
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
  const std::string verdict = comparison.verdicts.back().front().axes.front().axis;
  comparison.placements.push_back({record.name, verdict, placement_run(record, first), placement_run(other, second)});
}

}  // namespace

ComparisonPlan make_comparison_plan(const CompareOptions& options) {
  ComparisonPlan plan;
  plan.options = options;
  check_outputs(options);
  comm::WorldOptions ranks;
  ranks.num_ranks = options.base.ranks;
  const int world_size = comm::planned_world_size(ranks);
  if (options.strategies.empty()) {
    plan_default_list(plan, world_size);
  } else {
    for (const StrategySpec& spec : parse_strategies(options.strategies)) {
      plan.strategies.push_back(plan_strategy(spec, options.base, world_size));
    }
  }
  plan.world = plan.strategies.front().plan.world;
  plan.world.topology = options.base.topology;       // which a run of one rank does not have
  constexpr size_t kRecordBytes = size_t{16} << 20;  // a rank's, of one run
  plan.world.comm_log_bytes = kRecordBytes;
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

Comparison compare(comm::World& world, const ComparisonPlan& plan, const train::CorpusSplit& text) {
  Comparison comparison;
  comparison.ranks = std::to_string(world.size()) + (world.size() == 1 ? " rank (" : " ranks (") + world.kind() + ")";
  comparison.nodes = world.topology().to_string();
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
