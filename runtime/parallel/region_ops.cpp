// Blocks travel in the order of ranks: [N, ..]. Where a rank's part is not one run of memory, it is packed before or
// put in order after, by swapping two dims:
//
//   positions   [B, N, T/N C]     B sequences, each cut in N          <-> [N, B, T/N C]; nothing to do where B is 1
//   channels    [R p, N, C/N]     p tensors a row, each cut in N      <-> [N, R p, C/N]
#include "runtime/parallel/region_ops.h"

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

namespace {

/// A temporary of activations that peers can reach.
Tensor travelling(const Region& region, Shape shape) {
  return Tensor::empty(std::move(shape), region.context.dtype, region.context.memory, Category::Communication);
}
Tensor result(const Region& region, Shape shape) {
  return Tensor::empty(std::move(shape), region.context.dtype, region.context.memory, Category::Activations);
}

int64_t share(const Region& region, int64_t length, const char* what) {
  SIXFOLD_CHECK_EQ(length % region.size(), 0, std::string(what) + " over the ranks of a group (" + region.tag + ")");
  return length / region.size();
}

/// [a, b, n] with its first two dims swapped, for the wire.
Tensor packed(const Region& region, const Tensor& x, int64_t a, int64_t b) {
  const int64_t n = a * b == 0 ? 0 : x.numel() / (a * b);
  const Tensor swapped = travelling(region, {b, a, n});
  kernels::swap_dims(region.context, x.reshape({a, b, n}), swapped);
  return swapped;
}

Arriving all_reduce(const Region& region, const Tensor& x) {
  if (region.size() == 1) return Arriving(x);
  const comm::Work work = region.group->all_reduce(x, x, ReduceOp::Sum, call_options(region.context, region.tag));
  return Arriving(region.context, work, x, x, {}, x);
}

/// Rows of B sequences, as they come from N ranks.
Arriving gather_positions(const Region& region, const Tensor& x) {
  if (region.size() == 1) return Arriving(x);
  const int64_t n = region.size(), b = region.num_sequences;
  const Tensor value = result(region, {x.dim(0) * n, x.dim(1)});
  const bool in_order = b == 1;
  const Tensor received = in_order ? value : travelling(region, {n, b, x.numel() / b});
  const comm::Work work = region.group->all_gather(x, received, call_options(region.context, region.tag));
  return Arriving(region.context, work, x, received, in_order ? Tensor() : value.reshape({b, n, x.numel() / b}), value);
}

Arriving scatter_positions(const Region& region, const Tensor& x) {
  if (region.size() == 1) return Arriving(x);
  const int64_t b = region.num_sequences;
  SIXFOLD_CHECK_EQ(x.dim(0) % b, 0, "rows over sequences (" + region.tag + ")");
  const int64_t rows = share(region, x.dim(0) / b, "positions") * b;
  const Tensor sent = b == 1 ? x : packed(region, x, b, region.size());
  const Tensor value = result(region, {rows, x.dim(1)});
  const comm::Work work =
      region.group->reduce_scatter(sent, value, ReduceOp::Sum, call_options(region.context, region.tag));
  return Arriving(region.context, work, sent, value, {}, value);
}

Arriving gather_channels(const Region& region, const Tensor& x) {
  if (region.size() == 1) return Arriving(x);
  const int64_t n = region.size(), rows = x.dim(0), channels = x.dim(1);
  const Tensor value = result(region, {rows, channels * n});
  const Tensor received = travelling(region, {n, rows, channels});
  const comm::Work work = region.group->all_gather(x, received, call_options(region.context, region.tag));
  return Arriving(region.context, work, x, received, value.reshape({rows, n, channels}), value);
}

Tensor slice_channels(const Region& region, const Tensor& x) {
  if (region.size() == 1) return x;
  const int64_t rows = x.dim(0), channels = share(region, x.dim(1), "channels");
  return packed(region, x, rows, region.size()).slice(region.group->rank() * rows * channels, {rows, channels});
}

/// positions -> channels: what a rank gets from each other are that one's positions of its own channels.
Arriving to_channels(const Region& region, const Tensor& x, int64_t num_tensors) {
  if (region.size() == 1) return Arriving(x);
  const int64_t n = region.size(), b = region.num_sequences, rows = x.dim(0);
  SIXFOLD_CHECK_EQ(rows % b, 0, "rows over sequences (" + region.tag + ")");
  const int64_t channels = share(region, x.dim(1) / num_tensors, "channels") * num_tensors;
  const Tensor sent = packed(region, x, rows * num_tensors, n);
  const Tensor value = result(region, {rows * n, channels});
  const Tensor received = travelling(region, {n, b, rows / b * channels});
  const comm::Work work = region.group->all_to_all(sent, received, call_options(region.context, region.tag));
  return Arriving(region.context, work, sent, received, value.reshape({b, n, rows / b * channels}), value);
}

Arriving to_positions(const Region& region, const Tensor& x, int64_t num_tensors) {
  if (region.size() == 1) return Arriving(x);
  const int64_t n = region.size(), b = region.num_sequences;
  SIXFOLD_CHECK_EQ(x.dim(0) % b, 0, "rows over sequences (" + region.tag + ")");
  const int64_t rows = share(region, x.dim(0) / b, "positions") * b, channels = x.dim(1) / num_tensors;
  const Tensor sent = packed(region, x, b, n);
  const Tensor value = result(region, {rows, x.dim(1) * n});
  const Tensor received = travelling(region, {n, rows * num_tensors, channels});
  const comm::Work work = region.group->all_to_all(sent, received, call_options(region.context, region.tag));
  return Arriving(region.context, work, sent, received, value.reshape({rows * num_tensors, n, channels}), value);
}

}  // namespace

Arriving::Arriving(kernels::Context& context, comm::Work work, Tensor sent, Tensor received, Tensor ordered,
                   Tensor value)
    : context_(&context),
      work_(std::move(work)),
      sent_(std::move(sent)),
      received_(std::move(received)),
      ordered_(std::move(ordered)),
      value_(std::move(value)) {}

Tensor Arriving::wait() {
  work_.wait();
  if (ordered_.defined()) kernels::swap_dims(*context_, received_, ordered_);
  sent_ = received_ = ordered_ = {};
  return std::move(value_);
}

Arriving CopyToRanks::backward(const Region& region, const Tensor& dy) {
  return all_reduce(region, dy);
}
Arriving SumOverRanks::forward(const Region& region, const Tensor& x) {
  return all_reduce(region, x);
}

Arriving GatherChannels::forward(const Region& region, const Tensor& x) {
  return gather_channels(region, x);
}
Tensor GatherChannels::backward(const Region& region, const Tensor& dy) {
  return slice_channels(region, dy);
}

Tensor SliceChannels::forward(const Region& region, const Tensor& x) {
  return slice_channels(region, x);
}
Arriving SliceChannels::backward(const Region& region, const Tensor& dy) {
  return gather_channels(region, dy);
}

Arriving GatherPositions::forward(const Region& region, const Tensor& x) {
  return gather_positions(region, x);
}
Arriving GatherPositions::backward(const Region& region, const Tensor& dy) {
  return scatter_positions(region, dy);
}

Arriving ScatterPositions::forward(const Region& region, const Tensor& x) {
  return scatter_positions(region, x);
}
Arriving ScatterPositions::backward(const Region& region, const Tensor& dy) {
  return gather_positions(region, dy);
}

Arriving ToChannels::forward(const Region& region, const Tensor& x, int64_t num_tensors) {
  return to_channels(region, x, num_tensors);
}
Arriving ToChannels::backward(const Region& region, const Tensor& dy, int64_t num_tensors) {
  return to_positions(region, dy, num_tensors);
}

Arriving ToPositions::forward(const Region& region, const Tensor& x, int64_t num_tensors) {
  return to_positions(region, x, num_tensors);
}
Arriving ToPositions::backward(const Region& region, const Tensor& dy, int64_t num_tensors) {
  return to_channels(region, dy, num_tensors);
}

}  // namespace sixfold::parallel
