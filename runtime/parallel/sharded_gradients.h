// ShardedGradients: gradients that a rank keeps for its shard only, as ZeRO-2 and ZeRO-3 do.
//
//   a unit's backward begins     its buckets get a buffer, 0 at first                            attach()
//   a bucket is complete         ReduceScatter; the oldest one is waited for where more          start()
//                                than max_travelling would be under way
//   it has arrived               this rank's piece is added to its shard, in f32, the buffer
//                                is free; HSDP, last micro-batch: AllReduce of the shard
//                                across nodes                                                    "hsdp.grads"
//   end of the step              wait for all                                                    finish()
//
// When a buffer is freed depends on the order of calls and not on time, so the memory in use is the same in every run.
// A shard's micro-batches are added in their order.
#pragma once

#include <deque>
#include <string>

#include "runtime/parallel/bucket.h"
#include "runtime/parallel/shard_groups.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

class ShardedGradients {
 public:
  /// `tag` is that of the ReduceScatter. All arguments but `options` and `tag` outlive this.
  ShardedGradients(const std::vector<Parameter*>& parameters, const FlatLayout& layout, ShardGroups& groups,
                   kernels::Context& context, const StrategyOptions& options, std::string tag);

  /// The next step: shards are 0.
  void clear();
  /// Gives the parameters of these buckets a gradient to add to, where they have none.
  void attach(const std::vector<size_t>& buckets);
  /// The bucket's gradients of a micro-batch are complete, or nobody has added any. last: of the step.
  void start(size_t bucket, bool last);
  /// Waits for all that is under way.
  void finish();
  /// This rank's sum, f32 [piece_count], after finish().
  const Tensor& shard(size_t bucket) const { return shards_[bucket]; }

 private:
  void finish_oldest();
  void start_across_nodes(size_t bucket);

  struct Travelling {
    size_t bucket;
    bool last;
    Tensor wire;  // [padded_count], reduced into this rank's piece
    comm::Work work;
  };
  struct AcrossNodes {
    size_t bucket;
    Tensor wire;  // [piece_count]
    comm::Work work;
  };

  const std::vector<Parameter*>& parameters_;
  const FlatLayout& layout_;
  ShardGroups& groups_;
  kernels::Context& context_;
  const DType grad_dtype_;
  const size_t max_travelling_;
  const std::string tag_;
  std::vector<Tensor> shards_;    // by bucket
  std::vector<Tensor> attached_;  // by bucket, f32 [padded_count]; undefined: nobody adds
  std::deque<Travelling> travelling_;
  std::vector<AcrossNodes> across_nodes_;
};

}  // namespace sixfold::parallel
