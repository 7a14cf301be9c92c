#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

void MicroBatch::to_device(kernels::Context& context) {
  if (context.queue == nullptr) return;
  const auto copy = [&](const Tensor& host, Tensor& there) {
    if (!host.defined()) return;
    if (there.numel() != host.numel() || !there.defined()) {
      there = Tensor::empty(host.shape(), host.dtype(), context.memory, Category::Other);
    }
    kernels::from_host(context, host, there);
  };
  copy(tokens, on_gpu_.tokens);
  copy(targets, on_gpu_.targets);
  copy(Tensor::view(sample_index.data(), {num_rows()}, DType::I64), on_gpu_.samples);
}

}  // namespace sixfold::parallel
