#include "kernels/cpu/checks.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/gemm.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cpu {

void matmul(Context& context, bool transpose_a, bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& c,
            bool accumulate) {
  const int64_t m = checked_dim(c, 2, 0, "matmul c"), n = c.dim(1);
  const int64_t k = checked_dim(a, 2, transpose_a ? 0 : 1, "matmul a");
  const float* a_data = transpose_a ? checked<float>(a, {k, m}, "matmul a") : checked<float>(a, {m, k}, "matmul a");
  const float* b_data = transpose_b ? checked<float>(b, {n, k}, "matmul b") : checked<float>(b, {k, n}, "matmul b");
  gemm(context, m, n, k, {a_data, a.dim(1), transpose_a}, {b_data, b.dim(1), transpose_b},
       checked<float>(c, {m, n}, "matmul c"), accumulate ? GemmStart::Keep : GemmStart::Zero, nullptr);
}

void linear_forward(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
  const int64_t k = checked_dim(weight, 2, 0, "linear weight"), n = weight.dim(1);
  const int64_t rows = checked_dim(x, 2, 0, "linear x");
  const float* bias_data = bias.defined() ? checked<float>(bias, {n}, "linear bias") : nullptr;
  gemm(context, rows, n, k, {checked<float>(x, {rows, k}, "linear x"), k, false}, {weight.data<float>(), n, false},
       checked<float>(y, {rows, n}, "linear y"), bias_data ? GemmStart::Bias : GemmStart::Zero, bias_data);
}

void linear_gelu_forward(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& hidden, const Tensor& activated) {
  cpu::linear_forward(context, x, weight, bias, hidden);
  cpu::gelu_forward(context, hidden, activated);
}

void linear_backward_input(Context& context, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  cpu::matmul(context, false, true, dy, weight, dx, false);
}

void linear_gelu_backward_input(Context& context, const Tensor& dy, const Tensor& weight, const Tensor& hidden,
                                const Tensor& dhidden) {
  cpu::linear_backward_input(context, dy, weight, dhidden);
  cpu::gelu_backward(context, dhidden, hidden, dhidden);
}

void linear_backward_weight(Context& context, const Tensor& x, const Tensor& dy, const Tensor& dweight,
                            const Tensor& dbias) {
  if (dweight.defined()) cpu::matmul(context, true, false, x, dy, dweight, true);
  if (!dbias.defined()) return;
  const int64_t rows = dy.dim(0), n = dy.dim(1);
  const float* gradient = dy.data<float>();
  float* out = checked<float>(dbias, {n}, "linear dbias");
  sum_rows(
      context, rows, n,
      [=](int64_t r, float* sums) {
        for (int64_t c = 0; c < n; ++c) sums[c] += gradient[r * n + c];
      },
      [=](const float* sums) {
        for (int64_t c = 0; c < n; ++c) out[c] += sums[c];
      });
}

}  // namespace sixfold::kernels::cpu
