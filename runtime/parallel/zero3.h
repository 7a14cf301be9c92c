// ZeRO stage 3 (fully sharded data parallel): a rank keeps its shard piece of parameters, gradients and optimizer
// state; a unit's parameters are whole only while it works.
//
//   start      each unit's parameters are Broadcast from rank 0 and cut                  "dp.params"
//   forward,   AllGather of a unit before it works, freed afterwards; meanwhile the      "zero3.gather"
//   backward   next `prefetch` units in the direction of the pass are gathered, on a     (outside of steps
//              communicator of its own, so that gradients do not queue before them       "zero3.gather.eval")
//   backward   ReduceScatter of a unit's gradients (sharded_gradients.h)                 "zero3.grads"
//
// Units count their users, so one that several micro-batches use at a time is gathered once. The root unit (bucket.h),
// which both ends of a tied model use, is gathered once a step and stays until the last backward has ended.
//
// Bytes sent per rank and step: (N-1)/N (m (2 (P - R) + G) + R), padded. Memory for parameters: P/N, R, and 1 +
// prefetch units. HSDP: N is the ranks of a node, and the AllReduce of shards across nodes is as in zero2.h.
//
// Source: Rajbhandari et al., "ZeRO", SC 2020, P_os+g+p; Zhao et al., "PyTorch FSDP", VLDB 2023, sections 3.2 and 3.3.
#pragma once

#include <memory>

#include "runtime/parallel/bucketed_strategy.h"
#include "runtime/parallel/sharded_gradients.h"

namespace sixfold::parallel {

class Zero3 final : public BucketedStrategy {
 public:
  /// As Ddp. `groups` as options.hsdp says. Collective.
  Zero3(const UnitList& units, const kernels::Place& place, std::unique_ptr<ShardGroups> groups,
        const StrategyOptions& options);

  void load_values(const std::function<void(Parameter&)>& fill) override;
  void before_forward(Unit& unit, int micro_batch) override;
  void after_forward(Unit& unit, int micro_batch) override;
  void before_backward(Unit& unit, int micro_batch) override;
  void after_backward(Unit& unit, int micro_batch) override;
  void after_step() override {}
  void gather_value(const Parameter& parameter, const Tensor& out) override;
  void gather_gradient(const Parameter& parameter, const Tensor& out) override;

 private:
  void clear_gradients() override;
  void prepare_backward(const Unit& unit) override { grads_.attach(gradients_of_unit_.at(&unit)); }
  bool reduces(int) const override { return true; }
  void start_reduction(size_t bucket) override { grads_.start(bucket, is_last(micro_batch())); }
  void end_backward() override {}
  void finish() override;

  /// Parameters of one bucket, whole.
  struct Gathered {
    Tensor values;  // [padded_count]; undefined: only the shard exists
    comm::Work work;
    int num_users = 0;  // units at work; 0 with values: gathered ahead, or the root
  };
  enum class Direction : int { Forward = 1, Backward = -1 };
  void open(const Unit& unit, Direction direction);
  void close(const Unit& unit);
  void start_gather(size_t bucket);
  void free_values(size_t bucket);

  const UnitList units_;
  const std::optional<size_t> root_;
  std::unique_ptr<ShardGroups> groups_;
  comm::Communicator gather_group_;
  UnitBuckets values_of_unit_, gradients_of_unit_;
  std::vector<Tensor> shards_;      // by bucket, [piece_count]
  std::vector<Gathered> gathered_;  // by bucket
  ShardedGradients grads_;
  bool in_step_ = false;  // from begin_step() to the last backward
};

}  // namespace sixfold::parallel
