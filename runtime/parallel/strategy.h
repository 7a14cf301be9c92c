// Strategy: how parameters, gradients and optimizer state are spread over the data-parallel group.
//
// One interface; each implementation is a composition of the six primitives. A strategy places the parameters when it
// is made (Parameter::value and grad become views of its buffers) and gives them their values in load_values(). Then
// the trainer calls, for each step:
//
//   begin_step(num_micro_batches)
//   for each micro-batch: before_forward(u), after_forward(u) for every unit; before_backward(u), gradient_ready(p),
//                         after_backward(u) for every unit in reverse
//   finish_gradients()    -> what this rank updates
//   (norm, clip, optimizer on those)
//   after_step()
//
// Micro-batches count from 0 within a step and their backwards run in that order. Every rank of the group makes the
// same calls; the gradients of a rank may become ready in another order than another's. Between steps, forwards alone
// may run (evaluation, sampling): before_forward(u, 0), after_forward(u, 0) for every unit, in order, on every rank.
//
// A parameter whose gradient is not reported in a step, since no rank used it, has the gradient 0: its momentum goes
// on and weight decay applies, as with fully sharded data parallelism in PyTorch. One that must stay as it is, is
// frozen.
//
//   strategy   parameters      gradients       optimizer state    sent per rank and step (m micro-batches)
//   ddp        P               P               whole              2(N-1)/N G
//   zero1      P               P               1/N                (N-1)/N G + (N-1)/N P
//   zero2      P               P/N + travel    1/N                m (N-1)/N G + (N-1)/N P
//   zero3      P/N + in use    P/N + travel    1/N                (N-1)/N (m (2(P-R) + G) + R)
//
// N ranks, P bytes of parameters, G bytes of gradients as they travel, R of the root unit (bucket.h). The exact
// formulas, padding included, are in predict.h. Source: Rajbhandari et al., "ZeRO", SC 2020; Zhao et al., "PyTorch
// FSDP", VLDB 2023.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

/// A run of elements with one set of hyper-parameters, all in one flat buffer: what the optimizer updates and the norm
/// sums over. Padding and frozen parameters are in none. The order of a rank's segments does not depend on the buckets,
/// and neither does the cutting where a rank holds whole parameters: then there is one a parameter.
struct UpdateSegment {
  Tensor value;  // [n], f32 or bf16
  Tensor grad;   // [n], f32, summed over the global batch
  bool decay = false;
  int64_t state_offset = 0;  // where this segment's optimizer state starts, in elements of state_elements()
  bool replicated = false;   // not cut by tensor parallelism: every rank of that group has the same
  bool partial = false;      // see Parameter::partial
  bool in_norm = true;       // false: a copy, which another rank has in the norm
};

struct StrategyOptions {
  int64_t bucket_bytes = int64_t{25} << 20;  // 0: one parameter a bucket; ZeRO-3 has a bucket a unit
  /// Communication goes on while units compute. Without: DDP and ZeRO-1 reduce after backward, ZeRO-2 and 3 wait for
  /// every operation where they start it.
  bool overlap = true;
  bool deterministic = false;      // reduce each micro-batch in rank order into an accumulator
  int zero = 0;                    // stage: 0 (DDP), 1, 2, 3
  bool hsdp = false;               // stages 2 and 3: shards within a node, replicas across nodes
  int prefetch = 1;                // ZeRO-3: units gathered ahead of the one that computes
  DType grad_dtype = DType::F32;   // what gradients travel as: f32 or bf16
  DType param_dtype = DType::F32;  // of parameters, as kernels read them: f32 or, on a GPU, bf16; gradients are f32
  int max_travelling = 2;          // ZeRO-2 and 3: buckets of gradients under way, each with a buffer of its own
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Gives the parameters values, new ones or those of a file: `fill` writes parameter.value, which is whole (of the
  /// local shape) meanwhile; afterwards all ranks of the group have what rank 0 wrote ("dp.params"). `fill` is called
  /// on rank 0 only. Collective.
  virtual void load_values(const std::function<void(Parameter&)>& fill) = 0;

  virtual void begin_step(int num_micro_batches) = 0;
  virtual void before_forward(Unit& unit, int micro_batch) = 0;
  virtual void after_forward(Unit& unit, int micro_batch) = 0;
  virtual void before_backward(Unit& unit, int micro_batch) = 0;
  virtual void gradient_ready(Parameter& parameter, int micro_batch) = 0;
  virtual void after_backward(Unit& unit, int micro_batch) = 0;
  /// Waits for the gradients. The segments stay valid until begin_step().
  virtual const std::vector<UpdateSegment>& finish_gradients() = 0;
  /// After the optimizer: makes the new parameters visible where they are needed, at the latest when the unit's next
  /// before_forward() returns.
  virtual void after_step() = 0;
  /// Waits for all that after_step() has set on its way.
  virtual void settle() {}

  /// The ranks whose segments together are each parameter's elements once; nullptr where this rank's alone are.
  virtual comm::Communicator* shard_group() = 0;
  /// Elements of optimizer state that this rank keeps per moment.
  virtual int64_t state_elements() const = 0;
  /// Copies the whole parameter (local to its tensor-parallel shard) to `out`, f32 of the parameter's local shape.
  /// Collective; shards travel as "zero.whole".
  virtual void gather_value(const Parameter& parameter, const Tensor& out) = 0;
  /// As gather_value, of the gradient between finish_gradients() and the next begin_step(). Frozen: 0.
  virtual void gather_gradient(const Parameter& parameter, const Tensor& out) = 0;
  /// As gather_value, of one moment of the optimizer: `moment` is this rank's, [state_elements()]. Frozen: 0.
  virtual void gather_moment(const Parameter& parameter, const Tensor& moment, const Tensor& out) = 0;
};

/// The strategy that the options name, with the parameters of `units` placed in buffers of `place`, all 0. `group`
/// is the data-parallel group; it, the units and the place outlive the strategy. Collective, with the same arguments
/// on all ranks of the group. Throws ConfigError for options that do not fit together or the group (check_strategy).
std::unique_ptr<Strategy> make_strategy(const UnitList& units, const kernels::Place& place, comm::Communicator& group,
                                        const StrategyOptions& options);

/// Throws ConfigError, naming flag, value and allowed values, for options that cannot be on ranks laid out like
/// `topology`. Pure: callable before any rank exists.
void check_strategy(const StrategyOptions& options, const comm::Topology& topology);

/// "ddp", "zero1", .., "hsdp (zero3)": for reports.
std::string strategy_name(const StrategyOptions& options);

}  // namespace sixfold::parallel
