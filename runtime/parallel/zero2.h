// ZeRO stage 2: every rank has all parameters, and the gradients and optimizer state of its shard piece of each bucket.
//
//   start      Broadcast of each bucket of parameters from rank 0                        "dp.params"
//   backward   of each micro-batch: ReduceScatter of a bucket as soon as it is           "zero2.grads"
//              complete; the piece is added to the shard (sharded_gradients.h)
//   after      AllGather of the new parameters; a unit waits for its own before its      "zero2.params"
//              next forward
//
// Bytes sent per rank and step: m (N-1)/N G + (N-1)/N P, padded. With HSDP, N is the ranks of a node, and AllReduce of
// the shard across M nodes adds 2(M-1)/M G/N, once a step.
//
// Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC 2020, P_os+g.
#pragma once

#include <memory>

#include "runtime/parallel/bucketed_strategy.h"
#include "runtime/parallel/sharded_gradients.h"
#include "runtime/parallel/whole_values.h"

namespace sixfold::parallel {

class Zero2 final : public BucketedStrategy {
 public:
  /// As Ddp. `groups` as options.hsdp says.
  Zero2(const UnitList& units, const kernels::Place& place, std::unique_ptr<ShardGroups> groups,
        const StrategyOptions& options);

  void load_values(const std::function<void(Parameter&)>& fill) override { values_.load(groups_->all(), fill); }
  void before_forward(Unit& unit, int) override { values_.wait_for(unit); }
  void after_forward(Unit&, int) override {}
  void after_step() override;
  void settle() override { values_.wait(); }
  void gather_value(const Parameter& parameter, const Tensor& out) override;
  void gather_gradient(const Parameter& parameter, const Tensor& out) override;

 private:
  void clear_gradients() override { grads_.clear(); }
  void prepare_backward(const Unit& unit) override { grads_.attach(gradients_of_unit_.at(&unit)); }
  bool reduces(int) const override { return true; }
  void start_reduction(size_t bucket) override { grads_.start(bucket, is_last(micro_batch())); }
  void end_backward() override {}
  void finish() override { grads_.finish(); }

  std::unique_ptr<ShardGroups> groups_;
  WholeValues values_;
  UnitBuckets gradients_of_unit_;
  ShardedGradients grads_;
};

}  // namespace sixfold::parallel
