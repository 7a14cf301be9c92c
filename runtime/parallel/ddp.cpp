#include "runtime/parallel/ddp.h"

#include "runtime/parallel/call_options.h"
#include "runtime/parallel/wire.h"

namespace sixfold::parallel {

Ddp::Ddp(const UnitList& units, const kernels::Place& place, comm::Communicator& group, const StrategyOptions& options)
    : BucketedStrategy(units, layout_by_size(units, group.size(), options.bucket_bytes), place, nullptr, options,
                       options.overlap),
      group_(group),
      values_(units, layout_, place, options.param_dtype),
      grads_(make_buckets(layout_, place, DType::F32, Category::Gradients)) {
  if (options_.deterministic) sums_ = make_buckets(layout_, place, DType::F32, Category::Gradients);
  for (size_t b = 0; b < grads_.size(); ++b) {
    view_bucket(parameters_, layout_.buckets[b], grads_[b], &Parameter::grad);
    add_segments(b, held(b), values_.bucket(b), grads_[b]);
  }
}

void Ddp::clear_gradients() {
  for (const Tensor& grads : grads_) kernels::zero(context_, grads);
  for (const Tensor& sum : sums_) kernels::zero(context_, sum);
}

void Ddp::start_reduction(size_t bucket) {
  if (group_.size() == 1) return;
  const Tensor wire = to_wire(context_, grads_[bucket], options_.grad_dtype);
  under_way_.push_back(
      {bucket, wire, group_.all_reduce(wire, wire, ReduceOp::Sum, call_options(context_, "dp.grads"))});
}

void Ddp::end_backward() {
  for (Reduction& reduction : under_way_) {
    reduction.work.wait();
    from_wire(context_, reduction.wire, grads_[reduction.bucket]);
  }
  under_way_.clear();
  if (is_last(micro_batch())) return;
  for (size_t b = 0; b < sums_.size(); ++b) {
    kernels::accumulate(context_, grads_[b], sums_[b]);
    kernels::zero(context_, grads_[b]);
  }
}

void Ddp::finish() {
  // sums + grads are the same bits as grads + sums, so the last micro-batch still counts as added last.
  for (size_t b = 0; b < sums_.size(); ++b) kernels::accumulate(context_, sums_[b], grads_[b]);
}

}  // namespace sixfold::parallel
