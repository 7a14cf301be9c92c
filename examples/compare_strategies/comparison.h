// A comparison: which strategies are run, in what order, and all that is known afterwards.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/compare_strategies/checks.h"
#include "examples/compare_strategies/measure.h"
#include "examples/compare_strategies/options.h"
#include "examples/compare_strategies/verdict.h"

namespace sixfold::compare_strategies {

/// What is to be run. Made before anything is allocated, the same on all ranks.
struct ComparisonPlan {
  CompareOptions options;
  std::vector<PlannedStrategy> strategies;
  std::vector<std::pair<std::string, std::string>> left_out;  // of the default list: name, reason
  std::vector<comm::Profile> profiles;                        // of verdicts: emulated links, then --profile
  comm::WorldOptions world;

  /// What all strategies train. There is at least one strategy.
  const models::GptConfig& model() const { return strategies.front().plan.model; }
};
/// Throws ConfigError naming flag, value and allowed values; for the default list, where no strategy fits.
ComparisonPlan make_comparison_plan(const CompareOptions& options);

/// A strategy of two axes, run with one axis inside the nodes and the other across them.
struct PlacementRun {
  std::string inside, across;  // axes
  double step_ms = 0;
  double exposed_ms =
      0;  // while data were on the way: waits for late ranks, such as a pipeline's bubble, are not in it
  double inside_exposed_ms = 0, across_exposed_ms = 0;  // of the operations of that axis
};
struct Placement {
  std::string strategy;
  std::string verdict;  // the axis that belongs inside, by judge()
  PlacementRun first, second;
  /// Whether less communication was in the way with the verdict's axis inside.
  bool agrees() const { return (first.exposed_ms <= second.exposed_ms ? first.inside : second.inside) == verdict; }
};

struct Comparison {
  std::vector<StrategyRecord> records;
  std::vector<std::vector<Verdict>> verdicts;  // by record, then profile
  std::vector<Placement> placements;           // with emulated links between nodes
  std::string ranks;                           // "4 ranks (threads)"
  std::string nodes;                           // Topology::to_string()

  std::vector<LossDifference> differing() const { return differing_losses(records, kLossTolerance); }
};

/// Runs all strategies. The result is complete on rank 0. Collective.
Comparison compare(comm::World& world, const ComparisonPlan& plan, const train::CorpusSplit& text);

/// The axes of which all groups lie within nodes of `topology`, when the mesh's ranks are these world ranks; axes of
/// one rank are in none of the lists.
struct AxesByPlace {
  std::vector<std::string> inside, across;
};
AxesByPlace place_axes(const parallel::MeshShape& mesh, const std::vector<int>& ranks, const comm::Topology& topology);

}  // namespace sixfold::compare_strategies
