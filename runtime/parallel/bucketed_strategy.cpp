#include "runtime/parallel/bucketed_strategy.h"

#include <algorithm>

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

BucketedStrategy::BucketedStrategy(const UnitList& units, FlatLayout layout, const kernels::Place& place,
                                   comm::Communicator* shard_group, const StrategyOptions& options, bool early)
    : options_(options),
      context_(kernels::context_of(place)),
      parameters_(parameters_of(units)),
      layout_(std::move(layout)),
      shard_group_(shard_group),
      early_(early),
      queue_(parameters_, layout_),
      state_offset_(parameters_.size()) {
  for (const BucketLayout& bucket : layout_.buckets) {
    trained_.push_back(std::any_of(bucket.parameters.begin(), bucket.parameters.end(),
                                   [this](size_t i) { return !parameters_[i]->frozen; }));
  }
}

void BucketedStrategy::add_segments(size_t bucket, FlatRange range, const Tensor& values, const Tensor& grads) {
  for (const FlatSegment& s : segments_in(layout_, bucket, range)) {
    const Parameter& parameter = *parameters_[s.parameter];
    if (parameter.frozen) continue;
    const int64_t offset = s.offset - range.begin;
    segments_.push_back({values.slice(offset, {s.count}), grads.slice(offset, {s.count}), parameter.decay,
                         state_elements_, parameter.shard.count == 1, parameter.partial});
    state_offset_[s.parameter] = state_elements_;
    state_elements_ += s.count;
  }
}

FlatRange BucketedStrategy::held(size_t bucket) const {
  const BucketLayout& layout = layout_.buckets[bucket];
  return shard_group_ == nullptr ? FlatRange{0, layout.count} : layout.piece(shard_group_->rank());
}

// ---- A step --------------------------------------------------------------------------------------------------------

void BucketedStrategy::begin_step(int num_micro_batches) {
  SIXFOLD_CHECK_LE(1, num_micro_batches, "micro-batches of a step");
  num_micro_batches_ = num_micro_batches;
  micro_batch_ = -1;
  clear_gradients();
}

void BucketedStrategy::before_backward(Unit& unit, int micro_batch) {
  if (micro_batch != micro_batch_) {
    SIXFOLD_CHECK_EQ(micro_batch, micro_batch_ + 1, "backwards run in the order of micro-batches");
    if (micro_batch_ >= 0) finish_backward();
    queue_.reset();
    micro_batch_ = micro_batch;
  }
  prepare_backward(unit);
}

void BucketedStrategy::gradient_ready(Parameter& parameter, int micro_batch) {
  SIXFOLD_CHECK_EQ(micro_batch, micro_batch_, "a gradient outside its backward: " + parameter.name);
  queue_.mark_ready(parameter);
  if (early_ && reduces(micro_batch)) launch_complete();
}

/// Starts the reduction of the buckets that are complete and whose predecessors have been started.
void BucketedStrategy::launch_complete() {
  while (const std::optional<size_t> bucket = queue_.take()) start_reduction(*bucket);
}

void BucketedStrategy::finish_backward() {
  queue_.mark_rest_ready();
  if (reduces(micro_batch_)) launch_complete();
  end_backward();
}

const std::vector<UpdateSegment>& BucketedStrategy::finish_gradients() {
  SIXFOLD_CHECK_EQ(micro_batch_, num_micro_batches_ - 1, "micro-batches without a backward");
  finish_backward();
  finish();
  return segments_;
}

// ---- Whole parameters ----------------------------------------------------------------------------------------------

size_t BucketedStrategy::index_of(const Parameter& parameter) const {
  const auto found = std::find(parameters_.begin(), parameters_.end(), &parameter);
  SIXFOLD_CHECK(found != parameters_.end(), "no unit of this strategy has parameter " + parameter.name);
  return static_cast<size_t>(found - parameters_.begin());
}

void BucketedStrategy::put(const Tensor& values, const Tensor& out) {
  if (values.dtype() == out.dtype()) return kernels::copy(context_, values, out);
  kernels::convert(context_, values, out);
}

void BucketedStrategy::gather_held(size_t index, const Tensor& held_tensor, const Tensor& out) {
  const FlatLayout::Place& place = layout_.places[index];
  const FlatRange range = held(place.bucket);
  const int64_t begin = std::clamp(place.offset, range.begin, range.end);
  const int64_t end = std::clamp(place.offset + place.count, range.begin, range.end);
  gather_parts(index, held_tensor.slice(begin - range.begin, {end - begin}), out);
}

void BucketedStrategy::gather_moment(const Parameter& parameter, const Tensor& moment, const Tensor& out) {
  const size_t index = index_of(parameter);
  if (parameter.frozen) return kernels::zero(context_, out);
  const int64_t count =
      shard_group_ == nullptr ? layout_.places[index].count : part_of(layout_, index, shard_group_->rank()).count();
  gather_parts(index, moment.slice(count == 0 ? 0 : state_offset_[index], {count}), out);
}

void BucketedStrategy::gather_parts(size_t index, const Tensor& mine, const Tensor& out) {
  if (shard_group_ == nullptr) return put(mine, out);
  std::vector<size_t> counts;
  for (int r = 0; r < shard_group_->size(); ++r) {
    counts.push_back(static_cast<size_t>(part_of(layout_, index, r).count()));
  }
  const Tensor whole =
      mine.dtype() == DType::F32 ? out : Tensor::empty(out.shape(), mine.dtype(), context_.memory, Category::Other);
  shard_group_->all_gather(mine, whole, counts, call_options(context_, "zero.whole")).wait();
  if (mine.dtype() != DType::F32) kernels::convert(context_, whole, out);
}

}  // namespace sixfold::parallel
