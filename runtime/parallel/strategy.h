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
// same calls; the gradients of a rank may become ready in another order than another's.
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
/// sums over. Padding is in none. The order of a rank's segments does not depend on the buckets, and neither does the
/// cutting where a rank holds whole parameters: then there is one a parameter.
struct UpdateSegment {
  Tensor value;  // [n]
  Tensor grad;   // [n], summed over the global batch
  bool decay = false;
  int64_t state_offset = 0;  // where this segment's optimizer state starts, in elements of state_elements()
};

struct StrategyOptions {
  int64_t bucket_bytes = int64_t{25} << 20;  // 0: one parameter a bucket
  bool overlap = true;         // start a bucket's reduction as soon as it is complete, else after backward
  bool deterministic = false;  // reduce each micro-batch in rank order into an accumulator
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Gives the parameters values, new ones or those of a file: `fill` writes parameter.value, which is whole (of the
  /// local shape) meanwhile; afterwards all ranks of the group have what rank 0 wrote. `fill` may be called on some
  /// ranks only. Collective.
  virtual void load_values(const std::function<void(Parameter&)>& fill) = 0;

  virtual void begin_step(int num_micro_batches) = 0;
  virtual void before_forward(Unit& unit, int micro_batch) = 0;
  virtual void after_forward(Unit& unit, int micro_batch) = 0;
  virtual void before_backward(Unit& unit, int micro_batch) = 0;
  virtual void gradient_ready(Parameter& parameter, int micro_batch) = 0;
  virtual void after_backward(Unit& unit, int micro_batch) = 0;
  /// Waits for the gradients. The segments stay valid until begin_step().
  virtual const std::vector<UpdateSegment>& finish_gradients() = 0;
  /// After the optimizer: makes the new parameters visible where they are needed.
  virtual void after_step() = 0;

  /// Elements of optimizer state that this rank keeps per moment.
  virtual int64_t state_elements() const = 0;
  /// Copies the whole parameter (local to its tensor-parallel shard) to `out`, of the parameter's local shape.
  /// Collective.
  virtual void gather_value(const Parameter& parameter, const Tensor& out) = 0;
  /// As gather_value, of the gradient between finish_gradients() and the next begin_step().
  virtual void gather_gradient(const Parameter& parameter, const Tensor& out) = 0;
};

}  // namespace sixfold::parallel
