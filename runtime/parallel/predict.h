// What a strategy sends and keeps, by the formulas of the papers (strategy.h), worked out from the sizes of units
// alone: something independent for what links and memory have counted to be compared with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/parallel/pipeline_schedule.h"
#include "runtime/parallel/stage_units.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

/// A strategy and the ranks that it runs on.
struct StrategyShape {
  StrategyOptions options;
  int num_ranks = 1;          // of the data-parallel group
  int num_nodes = 1;          // of as many ranks each; counts with hsdp only
  int num_micro_batches = 1;  // of a step
};

/// What a rank sends under one tag in a step, by ring or by direct in two shots; an average over the ranks where an
/// AllReduce cuts a bucket into parts that are not equal.
struct TagTraffic {
  std::string tag;
  double payload_bytes = 0;  // the formula
  double padding_bytes = 0;  // what filling up each bucket to equal pieces adds
};
/// One a tag of gradients and parameters; none on one rank.
std::vector<TagTraffic> predicted_traffic(const UnitList& units, const StrategyShape& shape);

/// The same for the strategies of a stage (stage_strategy.h): the sum over its parts, tied weights once a step.
std::vector<TagTraffic> predicted_traffic(const StageUnits& stage, const StrategyShape& shape);
/// What a stage sends to other stages in a step: "pp.activation" and "pp.gradient", `activation_elements` (B T C) of
/// `dtype` a micro-batch and boundary between chunks, and "pp.tied" in f32. None with one stage.
std::vector<TagTraffic> predicted_pipeline_traffic(const PipelineShape& pipeline, const StageUnits& stage,
                                                   int64_t activation_elements, DType dtype);

/// Elements of the partial gradients (Parameter::partial) that rank `rank` of the data-parallel group holds of a stage:
/// what sum_partial_gradients() adds up over the tensor-parallel ranks.
int64_t partial_elements(const StageUnits& stage, const StrategyShape& shape, int rank);

/// Peak bytes of a rank, padding included. With P, G, N and R as in strategy.h:
///
///   DDP      parameters P                                 gradients G (deterministic: 2 G)
///   ZeRO-1   parameters P                                 gradients G (deterministic: G + G/N)
///   ZeRO-2   parameters P                                 gradients G/N + buffers
///   ZeRO-3   parameters P/N + R + 1 + prefetch units      gradients G/N + buffers
///
/// buffers: those of the buckets that a unit adds to (the root's from its first user to its last), and max_travelling
/// under way (as bf16 these are copies in Category::Communication). P is in the parameters' dtype, G in f32. Optimizer:
/// `floats_per_element` (train/optimizer.h) x 4 bytes for each element that the rank updates.
struct MemoryPrediction {
  int64_t parameters = 0, gradients = 0, optimizer = 0;
  std::optional<int64_t> activations;  // for who knows the model to fill in
};
MemoryPrediction predicted_memory(const UnitList& units, const StrategyShape& shape, int floats_per_element,
                                  int rank = 0);
/// The same for the strategies of a stage, the sum over its parts but for what comes and goes: with ZeRO-3 the units of
/// one chunk are whole at a time, and buffers are those of the backwards in the order of the stage's list of actions.
/// Buckets of one chunk may still be under way while another's are filled, and tied weights have their buffer from
/// their first user to the end of the step.
MemoryPrediction predicted_memory(const StageUnits& stage, const StrategyShape& shape, const PipelineShape& pipeline,
                                  int floats_per_element, int rank = 0);

}  // namespace sixfold::parallel
