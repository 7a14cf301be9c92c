#include "runtime/parallel/sharded_gradients.h"

#include "runtime/parallel/call_options.h"
#include "runtime/parallel/wire.h"

namespace sixfold::parallel {

ShardedGradients::ShardedGradients(const std::vector<Parameter*>& parameters, const FlatLayout& layout,
                                   ShardGroups& groups, kernels::Context& context, const StrategyOptions& options,
                                   std::string tag)
    : parameters_(parameters),
      layout_(layout),
      groups_(groups),
      context_(context),
      grad_dtype_(options.grad_dtype),
      max_travelling_(options.overlap ? static_cast<size_t>(options.max_travelling) : 0),
      tag_(std::move(tag)),
      attached_(layout.buckets.size()) {
  SIXFOLD_CHECK_LE(0, options.max_travelling, "buckets of gradients under way");
  for (const BucketLayout& bucket : layout.buckets) {
    shards_.push_back(kernels::zeros(context, {bucket.piece_count}, DType::F32, Category::Gradients));
  }
}

void ShardedGradients::clear() {
  for (const Tensor& shard : shards_) kernels::zero(context_, shard);
}

void ShardedGradients::attach(const std::vector<size_t>& buckets) {
  for (size_t b : buckets) {
    if (attached_[b].defined()) continue;
    const BucketLayout& bucket = layout_.buckets[b];
    attached_[b] = kernels::zeros(context_, {bucket.padded_count}, DType::F32, Category::Gradients);
    view_bucket(parameters_, bucket, attached_[b], &Parameter::grad);
  }
}

void ShardedGradients::start(size_t bucket, bool last) {
  attach({bucket});  // where no unit has added anything
  while (!travelling_.empty() && travelling_.size() >= max_travelling_) finish_oldest();
  const Tensor wire = to_wire(context_, attached_[bucket], grad_dtype_);
  attached_[bucket] = {};
  view_bucket(parameters_, layout_.buckets[bucket], {}, &Parameter::grad);
  comm::Communicator& group = groups_.shards();
  const int64_t count = layout_.buckets[bucket].piece_count;
  comm::Work work = group.reduce_scatter(wire, wire.slice(group.rank() * count, {count}), ReduceOp::Sum,
                                         call_options(context_, tag_));
  travelling_.push_back({bucket, last, wire, std::move(work)});
  if (max_travelling_ == 0) finish_oldest();
}

void ShardedGradients::finish_oldest() {
  Travelling& oldest = travelling_.front();
  oldest.work.wait();
  const Tensor& shard = shards_[oldest.bucket];
  kernels::accumulate(context_, oldest.wire.slice(groups_.shards().rank() * shard.numel(), {shard.numel()}), shard);
  if (oldest.last && groups_.replicas() != nullptr) start_across_nodes(oldest.bucket);
  travelling_.pop_front();
}

void ShardedGradients::start_across_nodes(size_t bucket) {
  const Tensor wire = to_wire(context_, shards_[bucket], grad_dtype_);
  comm::Work work = groups_.replicas()->all_reduce(wire, wire, ReduceOp::Sum, call_options(context_, "hsdp.grads"));
  across_nodes_.push_back({bucket, wire, std::move(work)});
}

void ShardedGradients::finish() {
  while (!travelling_.empty()) finish_oldest();
  for (AcrossNodes& sum : across_nodes_) {
    sum.work.wait();
    from_wire(context_, sum.wire, shards_[sum.bucket]);
  }
  across_nodes_.clear();
}

}  // namespace sixfold::parallel
