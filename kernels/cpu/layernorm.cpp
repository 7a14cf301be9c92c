#include "kernels/layernorm.h"

#include "kernels/cpu/checks.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cpu {

void layernorm_forward(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps,
                       const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const int64_t rows = checked_dim(x, 2, 0, "layernorm x"), channels = x.dim(1);
  const float* in = checked<float>(x, {rows, channels}, "layernorm x");
  const float* weight = checked<float>(gamma, {channels}, "layernorm gamma");
  const float* bias = checked<float>(beta, {channels}, "layernorm beta");
  float* out = checked<float>(y, {rows, channels}, "layernorm y");
  float* means = checked<float>(mean, {rows}, "layernorm mean");
  float* rstds = checked<float>(rstd, {rows}, "layernorm rstd");
  parallel_ranges(context.num_threads, rows, rows_per_piece(channels), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = in + r * channels;
      float* out_row = out + r * channels;
      const float count = static_cast<float>(channels);
      const float m = lane_sum(channels, [=](int64_t c) { return row[c]; }) / count;
      // Around the mean, not E[x^2] - mean^2, which cancels.
      const float variance = lane_sum(channels, [=](int64_t c) { return (row[c] - m) * (row[c] - m); }) / count;
      const float s = reciprocal_deviation(variance, eps);
      for (int64_t c = 0; c < channels; ++c) out_row[c] = normalized(row[c], m, s) * weight[c] + bias[c];
      means[r] = m;
      rstds[r] = s;
    }
  });
}

void residual_layernorm_forward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& x,
                                const Tensor& residual, const Tensor& gamma, const Tensor& beta, float eps,
                                const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  SIXFOLD_CHECK_EQ(rows.channel_offset, 0, "a row of LayerNorm has all channels");
  cpu::dropout_forward(context, site, rows, x, residual, sum);
  cpu::layernorm_forward(context, sum, gamma, beta, eps, y, mean, rstd);
}

void layernorm_backward_input(Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                              const Tensor& mean, const Tensor& rstd, const Tensor& dx) {
  const int64_t rows = checked_dim(x, 2, 0, "layernorm x"), channels = x.dim(1);
  const float* gradient = checked<float>(dy, {rows, channels}, "layernorm dy");
  const float* in = checked<float>(x, {rows, channels}, "layernorm x");
  const float* weight = checked<float>(gamma, {channels}, "layernorm gamma");
  const float* means = checked<float>(mean, {rows}, "layernorm mean");
  const float* rstds = checked<float>(rstd, {rows}, "layernorm rstd");
  float* out = checked<float>(dx, {rows, channels}, "layernorm dx");
  parallel_ranges(context.num_threads, rows, rows_per_piece(channels), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *row = in + r * channels, *dy_row = gradient + r * channels;
      float* out_row = out + r * channels;
      const float m = means[r], s = rstds[r], count = static_cast<float>(channels);
      const float g = lane_sum(channels, [=](int64_t c) { return dy_row[c] * weight[c]; }) / count;
      const float gn =
          lane_sum(channels, [=](int64_t c) { return dy_row[c] * weight[c] * normalized(row[c], m, s); }) / count;
      for (int64_t c = 0; c < channels; ++c)
        out_row[c] += layernorm_gradient(dy_row[c] * weight[c], g, normalized(row[c], m, s), gn, s);
    }
  });
}

void layernorm_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const Tensor& mean,
                               const Tensor& rstd, const Tensor& dgamma, const Tensor& dbeta) {
  const int64_t rows = checked_dim(x, 2, 0, "layernorm x"), channels = x.dim(1);
  const float* gradient = checked<float>(dy, {rows, channels}, "layernorm dy");
  const float* in = checked<float>(x, {rows, channels}, "layernorm x");
  const float* means = checked<float>(mean, {rows}, "layernorm mean");
  const float* rstds = checked<float>(rstd, {rows}, "layernorm rstd");
  float* weight_gradient = dgamma.defined() ? checked<float>(dgamma, {channels}, "layernorm dgamma") : nullptr;
  float* bias_gradient = dbeta.defined() ? checked<float>(dbeta, {channels}, "layernorm dbeta") : nullptr;
  sum_rows(
      context, rows, 2 * channels,
      [=](int64_t r, float* sums) {
        const float *row = in + r * channels, *dy_row = gradient + r * channels;
        const float m = means[r], s = rstds[r];
        for (int64_t c = 0; c < channels; ++c) sums[c] += dy_row[c] * normalized(row[c], m, s);
        for (int64_t c = 0; c < channels; ++c) sums[channels + c] += dy_row[c];
      },
      [=](const float* sums) {
        for (int64_t c = 0; weight_gradient != nullptr && c < channels; ++c) weight_gradient[c] += sums[c];
        for (int64_t c = 0; bias_gradient != nullptr && c < channels; ++c) bias_gradient[c] += sums[channels + c];
      });
}

}  // namespace sixfold::kernels::cpu
