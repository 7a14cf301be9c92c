#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cpu {

void swap_dims(Context& context, const Tensor& src, const Tensor& dst) {
  const int64_t a = checked_dim(src, 3, 0, "swap src"), b = src.dim(1), n = src.dim(2);
  const float* in = checked<float>(src, {a, b, n}, "swap src");
  float* out = checked<float>(dst, {b, a, n}, "swap dst");
  parallel_ranges(context.num_threads, a * b, rows_per_piece(n), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::copy_n(in + (i % a * b + i / a) * n, n, out + i * n);
  });
}

}  // namespace sixfold::kernels::cpu
