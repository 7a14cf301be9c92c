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

#include "runtime/parallel/bucket.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

class Ddp final : public Strategy {
 public:
  /// Places the parameters of `units` in buffers taken from `memory`; values and gradients start as 0. `group` is the
  /// data-parallel group; it, the units and the memory outlive the Ddp. The same arguments on all ranks of the group.
  Ddp(const UnitList& units, Memory& memory, comm::Communicator& group, const StrategyOptions& options);

  /// Calls `fill` on rank 0 of the group only.
  void load_values(const std::function<void(Parameter&)>& fill) override;

  void begin_step(int num_micro_batches) override;
  void before_forward(Unit&, int) override {}
  void after_forward(Unit&, int) override {}
  void before_backward(Unit& unit, int micro_batch) override;
  void gradient_ready(Parameter& parameter, int micro_batch) override;
  void after_backward(Unit&, int) override {}
  const std::vector<UpdateSegment>& finish_gradients() override;
  void after_step() override {}

  int64_t state_elements() const override { return state_elements_; }
  void gather_value(const Parameter& parameter, const Tensor& out) override;
  void gather_gradient(const Parameter& parameter, const Tensor& out) override;

 private:
  bool reduces(int micro_batch) const;
  void launch_complete();
  void reduce_all();

  StrategyOptions options_;
  kernels::Context context_;
  comm::Communicator& group_;
  std::vector<Parameter*> parameters_;
  FlatLayout layout_;
  std::vector<Bucket> buckets_;
  std::vector<Tensor> sums_;  // by bucket, f32 [padded_count]: earlier micro-batches, reduced; deterministic only
  BucketQueue queue_;
  std::vector<UpdateSegment> segments_;
  int64_t state_elements_ = 0;
  int num_micro_batches_ = 0;
  int micro_batch_ = -1;  // whose backward is under way, -1: none yet in this step
};

}  // namespace sixfold::parallel
