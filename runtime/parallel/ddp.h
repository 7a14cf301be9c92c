// Distributed data parallel: every rank has all parameters and a share of the batch; gradients are summed.
//
//   start      Broadcast of each bucket of parameters from rank 0                        "dp.params"
//   backward   of the last micro-batch: AllReduce of each bucket of gradients, started   "dp.grads"
//              as soon as it is complete, while backward goes on
//   finish     wait; every rank then makes the same optimizer step
//
// Bytes sent per rank and step: 2(N-1)/N G with G the bytes of all padded buckets (ring, or direct in two shots),
// however many micro-batches there are. With `deterministic` each micro-batch is reduced, so it is that times their
// number.
//
// Deterministic: the World reduces in rank order (direct), and the reduced micro-batches are added up in their order,
// in a buffer of their own. Each element's additions then have one order, whatever bucket it is in and whenever it
// travels.
//
// Source: Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB 2020, section 3.2.
#pragma once

#include "runtime/parallel/bucketed_strategy.h"
#include "runtime/parallel/whole_values.h"

namespace sixfold::parallel {

class Ddp final : public BucketedStrategy {
 public:
  /// Places the parameters of `units` in buffers of `place`; values and gradients start as 0. `group` is the
  /// data-parallel group; it, the units and the memory outlive the Ddp. The same arguments on all ranks of the group.
  Ddp(const UnitList& units, const kernels::Place& place, comm::Communicator& group, const StrategyOptions& options);

  void load_values(const std::function<void(Parameter&)>& fill) override { values_.load(group_, fill); }
  void before_forward(Unit&, int) override {}
  void after_forward(Unit&, int) override {}
  void after_step() override {}
  void gather_value(const Parameter& parameter, const Tensor& out) override { put(parameter.value, out); }
  void gather_gradient(const Parameter& parameter, const Tensor& out) override { put(parameter.grad, out); }

 private:
  void clear_gradients() override;
  bool reduces(int micro_batch) const override { return options_.deterministic || is_last(micro_batch); }
  void start_reduction(size_t bucket) override;
  void end_backward() override;
  void finish() override;

  struct Reduction {
    size_t bucket;
    Tensor wire;
    comm::Work work;
  };

  comm::Communicator& group_;
  WholeValues values_;
  std::vector<Tensor> grads_;  // by bucket, f32 [padded_count]
  std::vector<Tensor> sums_;   // by bucket, f32 [padded_count]: earlier micro-batches, reduced; deterministic only
  std::vector<Reduction> under_way_;
};

}  // namespace sixfold::parallel
