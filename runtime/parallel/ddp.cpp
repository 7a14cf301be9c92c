#include "runtime/parallel/ddp.h"

namespace sixfold::parallel {

namespace {

FlatLayout layout_of(const std::vector<Parameter*>& parameters, int num_shards, int64_t bucket_bytes) {
  SIXFOLD_CHECK_LE(0, bucket_bytes, "bytes of a bucket");
  std::vector<int64_t> counts;
  for (const Parameter* parameter : parameters) counts.push_back(numel(parameter->local_shape()));
  constexpr auto kElementBytes = static_cast<int64_t>(sizeof(float));
  return make_flat_layout(counts, num_shards, (bucket_bytes + kElementBytes - 1) / kElementBytes);
}

}  // namespace

Ddp::Ddp(const UnitList& units, Memory& memory, comm::Communicator& group, const StrategyOptions& options)
    : options_(options),
      context_{memory},
      group_(group),
      parameters_(parameters_of(units)),
      layout_(layout_of(parameters_, group.size(), options.bucket_bytes)),
      buckets_(place_parameters(parameters_, layout_, memory)),
      queue_(parameters_, layout_) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if (options_.deterministic) {
      sums_.push_back(Tensor::zeros(bucket.grads.shape(), DType::F32, memory, Category::Gradients));
    }
    for (const FlatSegment& s : segments_in(layout_, b, {0, layout_.buckets[b].count})) {
      segments_.push_back({bucket.values.slice(s.offset, {s.count}), bucket.grads.slice(s.offset, {s.count}),
                           parameters_[s.parameter]->decay, state_elements_});
      state_elements_ += s.count;
    }
  }
}

void Ddp::load_values(const std::function<void(Parameter&)>& fill) {
  if (group_.rank() == 0) {
    for (Parameter* parameter : parameters_) fill(*parameter);
  }
  if (group_.size() == 1) return;
  std::vector<comm::Work> works;
  for (const Bucket& bucket : buckets_) works.push_back(group_.broadcast(bucket.values, 0, {.tag = "dp.params"}));
  for (comm::Work& work : works) work.wait();
}

void Ddp::begin_step(int num_micro_batches) {
  SIXFOLD_CHECK_LE(1, num_micro_batches, "micro-batches of a step");
  for (const Bucket& bucket : buckets_) bucket.grads.zero();
  for (const Tensor& sum : sums_) sum.zero();
  num_micro_batches_ = num_micro_batches;
  micro_batch_ = -1;
}

void Ddp::before_backward(Unit&, int micro_batch) {
  if (micro_batch == micro_batch_) return;
  SIXFOLD_CHECK_EQ(micro_batch, micro_batch_ + 1, "backwards run in the order of micro-batches");
  if (micro_batch_ >= 0) {
    queue_.check_all_ready();
    if (options_.deterministic) {
      reduce_all();
      for (size_t b = 0; b < buckets_.size(); ++b) {
        kernels::accumulate(context_, buckets_[b].grads, sums_[b]);
        buckets_[b].grads.zero();
      }
    }
  }
  queue_.reset();
  micro_batch_ = micro_batch;
}

void Ddp::gradient_ready(Parameter& parameter, int micro_batch) {
  SIXFOLD_CHECK_EQ(micro_batch, micro_batch_, "a gradient outside its backward: " + parameter.name);
  queue_.mark_ready(parameter);
  if (options_.overlap && reduces(micro_batch)) launch_complete();
}

const std::vector<UpdateSegment>& Ddp::finish_gradients() {
  SIXFOLD_CHECK_EQ(micro_batch_, num_micro_batches_ - 1, "micro-batches without a backward");
  queue_.check_all_ready();
  reduce_all();
  // sums + grads are the same bits as grads + sums, so the last micro-batch still counts as added last.
  for (size_t b = 0; b < sums_.size(); ++b) kernels::accumulate(context_, sums_[b], buckets_[b].grads);
  return segments_;
}

bool Ddp::reduces(int micro_batch) const {
  return options_.deterministic || micro_batch == num_micro_batches_ - 1;
}

/// Starts the reduction of the buckets that are complete and whose predecessors have been started.
void Ddp::launch_complete() {
  while (const std::optional<size_t> b = queue_.take()) {
    const Tensor& grads = buckets_[*b].grads;
    if (group_.size() > 1) {
      buckets_[*b].reduction = group_.all_reduce(grads, grads, ReduceOp::Sum, {.tag = "dp.grads"});
    }
  }
}

/// Starts what has not been started and waits for all.
void Ddp::reduce_all() {
  launch_complete();
  for (Bucket& bucket : buckets_) bucket.reduction.wait();
}

void Ddp::gather_value(const Parameter& parameter, const Tensor& out) {
  out.copy_from(parameter.value);
}

void Ddp::gather_gradient(const Parameter& parameter, const Tensor& out) {
  out.copy_from(parameter.grad);
}

}  // namespace sixfold::parallel
