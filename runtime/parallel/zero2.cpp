#include "runtime/parallel/zero2.h"

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

Zero2::Zero2(const UnitList& units, const kernels::Place& place, std::unique_ptr<ShardGroups> groups,
             const StrategyOptions& options)
    : BucketedStrategy(units, layout_by_size(units, groups->shards().size(), options.bucket_bytes), place,
                       &groups->shards(), options, /*early=*/true),
      groups_(std::move(groups)),
      values_(units, layout_, place, options.param_dtype),
      gradients_of_unit_(buckets_of_units(units, layout_, BucketsFor::Gradients)),
      grads_(parameters_, layout_, *groups_, context_, options, "zero2.grads") {
  for (size_t b = 0; b < layout_.buckets.size(); ++b) {
    add_segments(b, held(b), values_.piece(b, groups_->shards().rank()), grads_.shard(b));
  }
}

void Zero2::after_step() {
  comm::Communicator& group = groups_->shards();
  for (size_t b = layout_.buckets.size(); b-- > 0;) {  // the next forward needs the last bucket first
    if (!is_trained(b)) continue;
    values_.expect(
        b, group.all_gather(values_.piece(b, group.rank()), values_.bucket(b), call_options(context_, "zero2.params")));
  }
  if (!options_.overlap) values_.wait();
}

void Zero2::gather_value(const Parameter& parameter, const Tensor& out) {
  values_.wait();
  put(parameter.value, out);
}

void Zero2::gather_gradient(const Parameter& parameter, const Tensor& out) {
  const size_t index = index_of(parameter);
  gather_held(index, grads_.shard(layout_.places[index].bucket), out);
}

}  // namespace sixfold::parallel
