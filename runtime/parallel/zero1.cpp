#include "runtime/parallel/zero1.h"

#include "runtime/parallel/call_options.h"
#include "runtime/parallel/wire.h"

namespace sixfold::parallel {

namespace {

/// Shard `shard` of `num_shards` of a bucket.
Tensor piece_of(const Tensor& flat, int shard, int num_shards) {
  const int64_t count = flat.numel() / num_shards;
  return flat.slice(shard * count, {count});
}

}  // namespace

Zero1::Zero1(const UnitList& units, const kernels::Place& place, comm::Communicator& group,
             const StrategyOptions& options)
    : BucketedStrategy(units, layout_by_size(units, group.size(), options.bucket_bytes), place, &group, options,
                       options.overlap),
      group_(group),
      values_(units, layout_, place, options.param_dtype),
      grads_(make_buckets(layout_, place, DType::F32, Category::Gradients)) {
  for (size_t b = 0; b < grads_.size(); ++b) {
    view_bucket(parameters_, layout_.buckets[b], grads_[b], &Parameter::grad);
    add_segments(b, held(b), own_piece(values_.bucket(b)), own_piece(grads_[b]));
    if (options_.deterministic) {
      sums_.push_back(kernels::zeros(place, {layout_.buckets[b].piece_count}, DType::F32, Category::Gradients));
    }
  }
}

Tensor Zero1::own_piece(const Tensor& flat) const {
  return piece_of(flat, group_.rank(), group_.size());
}

void Zero1::clear_gradients() {
  for (const Tensor& grads : grads_) kernels::zero(context_, grads);
  for (const Tensor& sum : sums_) kernels::zero(context_, sum);
}

void Zero1::start_reduction(size_t bucket) {
  Reduction reduction{bucket, to_wire(context_, grads_[bucket], options_.grad_dtype), {}};
  for (int owner = 0; owner < group_.size(); ++owner) {
    const Tensor piece = piece_of(reduction.wire, owner, group_.size());
    reduction.works.push_back(group_.reduce(piece, piece, ReduceOp::Sum, owner, call_options(context_, "zero1.grads")));
  }
  under_way_.push_back(std::move(reduction));
}

void Zero1::end_backward() {
  for (Reduction& reduction : under_way_) {
    for (comm::Work& work : reduction.works) work.wait();
    from_wire(context_, own_piece(reduction.wire), own_piece(grads_[reduction.bucket]));
  }
  under_way_.clear();
  if (is_last(micro_batch())) return;
  for (size_t b = 0; b < sums_.size(); ++b) {
    kernels::accumulate(context_, own_piece(grads_[b]), sums_[b]);
    kernels::zero(context_, grads_[b]);
  }
}

void Zero1::finish() {
  for (size_t b = 0; b < sums_.size(); ++b) kernels::accumulate(context_, sums_[b], own_piece(grads_[b]));
}

void Zero1::after_step() {
  for (size_t b = layout_.buckets.size(); b-- > 0;) {  // the next forward needs the last bucket first
    if (!is_trained(b)) continue;
    for (int owner = 0; owner < group_.size(); ++owner) {
      values_.expect(b, group_.broadcast(values_.piece(b, owner), owner, call_options(context_, "zero1.params")));
    }
  }
  if (!options_.overlap) values_.wait();
}

void Zero1::gather_value(const Parameter& parameter, const Tensor& out) {
  values_.wait();
  put(parameter.value, out);
}

void Zero1::gather_gradient(const Parameter& parameter, const Tensor& out) {
  const size_t index = index_of(parameter);
  gather_held(index, own_piece(grads_[layout_.places[index].bucket]), out);
}

}  // namespace sixfold::parallel
