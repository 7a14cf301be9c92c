// BucketedStrategy: what all strategies share. Micro-batches run in their order, buckets start in theirs, a table of
// segments says what the optimizer updates, and single parameters are put together from shards.
//
// An implementation says where values and gradients live and which primitives carry them:
//
//   clear_gradients()       at the start of a step
//   prepare_backward(u)     before a unit adds to its gradients
//   start_reduction(b)      bucket b of this micro-batch is complete (in bucket order, where reduces(m) says so)
//   end_backward()          of a micro-batch, after its last start_reduction
//   finish()                of the step: waits
#pragma once

#include "runtime/parallel/bucket.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

class BucketedStrategy : public Strategy {
 public:
  void begin_step(int num_micro_batches) final;
  void before_backward(Unit& unit, int micro_batch) override;
  void gradient_ready(Parameter& parameter, int micro_batch) final;
  void after_backward(Unit&, int) override {}
  const std::vector<UpdateSegment>& finish_gradients() final;

  comm::Communicator* shard_group() final { return shard_group_; }
  int64_t state_elements() const final { return state_elements_; }
  void gather_moment(const Parameter& parameter, const Tensor& moment, const Tensor& out) final;

 protected:
  /// `shard_group`: see Strategy::shard_group(). early: buckets start as soon as they are complete, not after backward.
  BucketedStrategy(const UnitList& units, FlatLayout layout, const kernels::Place& place,
                   comm::Communicator* shard_group, const StrategyOptions& options, bool early);

  virtual void clear_gradients() = 0;
  virtual void prepare_backward(const Unit&) {}
  virtual bool reduces(int micro_batch) const = 0;
  virtual void start_reduction(size_t bucket) = 0;
  virtual void end_backward() = 0;
  virtual void finish() = 0;

  /// Adds the segments of `range` of a bucket, whose first element is the first of `values` and of `grads`.
  void add_segments(size_t bucket, FlatRange range, const Tensor& values, const Tensor& grads);
  /// This rank's range of the bucket: its shard piece, or all of it where there are no shards.
  FlatRange held(size_t bucket) const;
  /// out = parameter `index` from what the ranks of the shard group hold of its bucket: `held` is this rank's, from the
  /// first element of held(bucket) on. Collective over the shard group.
  void gather_held(size_t index, const Tensor& held, const Tensor& out);
  /// out (f32) = values, of either dtype that parameters have.
  void put(const Tensor& values, const Tensor& out);
  size_t index_of(const Parameter& parameter) const;
  bool is_last(int micro_batch) const { return micro_batch == num_micro_batches_ - 1; }
  /// Whose backward is under way; -1: none yet in this step.
  int micro_batch() const { return micro_batch_; }
  /// Whether the bucket has a parameter that is not frozen: only such are updated.
  bool is_trained(size_t bucket) const { return trained_[bucket]; }

  const StrategyOptions options_;
  kernels::Context context_;
  const std::vector<Parameter*> parameters_;
  const FlatLayout layout_;

 private:
  void launch_complete();
  void finish_backward();
  /// out = the parts of parameter `index`, of which `mine` is this rank's.
  void gather_parts(size_t index, const Tensor& mine, const Tensor& out);

  comm::Communicator* shard_group_;
  const bool early_;
  BucketQueue queue_;
  std::vector<bool> trained_;  // by bucket
  std::vector<UpdateSegment> segments_;
  std::vector<int64_t> state_offset_;  // by parameter: of its segment
  int64_t state_elements_ = 0;
  int num_micro_batches_ = 0;
  int micro_batch_ = -1;
};

}  // namespace sixfold::parallel
