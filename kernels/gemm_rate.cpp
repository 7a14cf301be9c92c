#include "kernels/gemm_rate.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace sixfold::kernels {

namespace {

Tensor filled(Context& context, Shape shape, float value) {
  const Tensor host = Tensor::of_host(shape, DType::F32);
  std::fill_n(host.data<float>(), host.numel(), value);
  const Tensor t = Tensor::empty(std::move(shape), context.dtype, context.memory, Category::Other);
  floats_from_host(context, host, t);
  return t;
}

}  // namespace

double measure_gemm_rate(Context& context) {
  using Clock = std::chrono::steady_clock;
  // On a GPU large enough to fill it, and several products a time, so that the wait for them counts for little.
  const bool on_gpu = context.queue != nullptr;
  const int64_t m = on_gpu ? 8192 : 1024, n = on_gpu ? 8192 : 768, k = n;
  const int num_products = on_gpu ? 8 : 1;
  constexpr auto kBudget = std::chrono::milliseconds(250);
  const Tensor a = filled(context, {m, k}, 0.5f), b = filled(context, {k, n}, 0.25f);
  const Tensor c = Tensor::empty({m, n}, context.dtype, context.memory, Category::Other);
  const auto multiply = [&] {
    for (int i = 0; i < num_products; ++i) matmul(context, false, false, a, b, c, false);
    on_host(context, c.slice(0, {1}));  // until they are done
  };
  multiply();  // warms the caches and starts the threads
  double best_seconds = std::numeric_limits<double>::infinity();
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    multiply();
    best_seconds = std::min(best_seconds, std::chrono::duration<double>(Clock::now() - start).count());
  } while (Clock::now() - begin < kBudget);
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * num_products;
  return flops / best_seconds * 1e-9;
}

}  // namespace sixfold::kernels
