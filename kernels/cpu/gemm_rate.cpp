#include "kernels/gemm_rate.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace sixfold::kernels {

double measure_gemm_rate(Context& context) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t m = 1024, n = 768, k = 768;
  constexpr auto kBudget = std::chrono::milliseconds(250);
  const Tensor a = Tensor::empty({m, k}, DType::F32, context.memory, Category::Other);
  const Tensor b = Tensor::empty({k, n}, DType::F32, context.memory, Category::Other);
  const Tensor c = Tensor::empty({m, n}, DType::F32, context.memory, Category::Other);
  std::fill_n(a.data<float>(), a.numel(), 0.5f);
  std::fill_n(b.data<float>(), b.numel(), 0.25f);
  matmul(context, false, false, a, b, c, false);  // warms the caches and starts the threads
  double best_seconds = std::numeric_limits<double>::infinity();
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    matmul(context, false, false, a, b, c, false);
    best_seconds = std::min(best_seconds, std::chrono::duration<double>(Clock::now() - start).count());
  } while (Clock::now() - begin < kBudget);
  return 2.0 * m * n * k / best_seconds * 1e-9;
}

}  // namespace sixfold::kernels
