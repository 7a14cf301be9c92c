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
  std::vector<std::pair<std::string, std::string>> left_out;  // of the list: name, reason
  std::vector<comm::Profile> profiles;                        // of verdicts: emulated links, then --profile
  comm::WorldOptions world;

  /// What all strategies train. There is at least one strategy.
  const models::GptConfig& model() const { return strategies.front().plan.model; }
};
/// Throws ConfigError naming flag, value and allowed values; for the default list, where no strategy of several ranks
/// fits though there are several.
ComparisonPlan make_comparison_plan(const CompareOptions& options);

/// A strategy of two axes, run with one axis inside the nodes and the other across them. Times in which data were on
/// the way and a rank did nothing else: waits for late ranks, such as a pipeline's bubble, are not in them.
struct PlacementRun {
  std::string inside, across;  // axes
  double step_ms = 0;
  std::vector<double> exposed_steps;                    // ms of each step that counts
  double inside_exposed_ms = 0, across_exposed_ms = 0;  // of the operations of that axis

  double exposed_ms() const { return median(exposed_steps); }
  double lower_quartile() const { return quantile(exposed_steps, 0.25); }
  double upper_quartile() const { return quantile(exposed_steps, 0.75); }
};
/// Of a verdict and a measurement. TooClose: the steps of the two runs differ among themselves as much as the runs do.
enum class Agreement : uint8_t { Agrees, Disagrees, TooClose };
struct Placement {
  std::string strategy;
  std::string verdict;  // the axis that belongs inside, by judge()
  PlacementRun first, second;

  /// Two runs differ where the lower quartile of one lies above the upper quartile of the other; with one step each,
  /// nobody knows. Agrees: less communication was in the way with the verdict's axis inside.
  Agreement agreement() const;
};

struct Comparison {
  std::vector<StrategyRecord> records;
  std::vector<std::vector<Verdict>> verdicts;  // by record, then profile
  std::vector<Placement> placements;           // with emulated links between nodes
  std::string ranks;                           // "4 ranks (threads)"
  std::string nodes;                           // Topology::to_string()
  int num_nodes = 1;

  std::vector<LossDifference> differing() const { return differing_losses(records, kLossTolerance); }
};

/// Why no placements were run though links are emulated or a profile is given, as the end of a sentence; else empty.
std::string no_placements_because(const Comparison& comparison, const ComparisonPlan& plan);

/// Runs all strategies. The result is complete on rank 0. Collective.
Comparison compare(comm::World& world, const ComparisonPlan& plan, const train::CorpusSplit& text);

/// The axes of which all groups lie within nodes of `topology`, when the mesh's ranks are these world ranks; axes of
/// one rank are in none of the lists.
struct AxesByPlace {
  std::vector<std::string> inside, across;
};
AxesByPlace place_axes(const parallel::MeshShape& mesh, const std::vector<int>& ranks, const comm::Topology& topology);

}  // namespace sixfold::compare_strategies
