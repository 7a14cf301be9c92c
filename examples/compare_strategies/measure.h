// Runs one strategy on the ranks of a World and puts together what all ranks know of it.
#pragma once

#include "examples/compare_strategies/record.h"
#include "examples/compare_strategies/strategies.h"
#include "examples/train_gpt/plan.h"
#include "runtime/comm/world.h"
#include "runtime/train/data.h"

namespace sixfold::compare_strategies {

/// Innermost: neighbouring ranks differ on the axis that talks most (mesh.h). Outermost: the other way round, the axis
/// that is outermost by default has neighbours.
enum class RankOrder : uint8_t { Innermost, Outermost };

struct PlannedStrategy {
  StrategySpec spec;
  train_gpt::Plan plan;  // quiet, without evaluation, sample or files
};

/// A plan of `spec`, with `base` naming data, model and world, on `world_size` ranks. Throws ConfigError: in the words
/// of strategies, unless what it says holds for one rank alone as well, and so for `base`.
PlannedStrategy plan_strategy(const StrategySpec& spec, const train_gpt::Options& base, int world_size);
/// Whether both do the same, whatever they are called.
bool is_same_run(const PlannedStrategy& a, const PlannedStrategy& b);

/// World ranks in the order of the mesh.
std::vector<int> ranks_in_order(const parallel::MeshShape& mesh, RankOrder order);

/// Trains plan.options.steps steps and returns the record on rank 0, an empty one elsewhere. Memory peaks and the
/// communication table start anew. Collective over all ranks of the world, those that take no part as well.
StrategyRecord measure(comm::World& world, const PlannedStrategy& strategy, const train::CorpusSplit& text,
                       RankOrder order = RankOrder::Innermost);

}  // namespace sixfold::compare_strategies
