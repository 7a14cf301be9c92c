#pragma once

#include "tests/cuda_cases/dropout_cases.h"
#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// LayerNorm of rows and its gradients, in double.
struct LayerNormCase {
  static constexpr float kEps = 1e-5f;
  size_t rows, channels;
  Shape shape, row_shape, channel_shape;
  Floats x, gamma, beta, dy, dx, dgamma, dbeta;  // the last three: what gradients are added to
  Doubles y, mean, rstd, sum_dx, sum_dgamma, sum_dbeta;

  LayerNormCase(const GpuRun& run, size_t rows_, size_t channels_)
      : rows(rows_),
        channels(channels_),
        shape{static_cast<int64_t>(rows_), static_cast<int64_t>(channels_)},
        row_shape{shape[0]},
        channel_shape{shape[1]} {
    Floats values = random_floats(numel(shape), 1, 2.0);
    for (float& v : values) v += 3.0f;  // a mean that must be taken off
    x = run.rounded(values);
    gamma = run.rounded(random_floats(shape[1], 2));
    beta = run.rounded(random_floats(shape[1], 3));
    dy = run.rounded(random_floats(numel(shape), 4));
    dx = run.rounded(random_floats(numel(shape), 5));
    dgamma = random_floats(shape[1], 6);
    dbeta = random_floats(shape[1], 7);
    work_out(x);
  }

  /// The results for other rows than x.
  void work_out(const Floats& of) {
    y.assign(of.size(), 0);
    mean.assign(rows, 0);
    rstd.assign(rows, 0);
    sum_dx = to_doubles(dx);
    sum_dgamma = to_doubles(dgamma);
    sum_dbeta = to_doubles(dbeta);
    for (size_t r = 0; r < rows; ++r)
      add_row(r, to_doubles({of.data() + r * channels, of.data() + (r + 1) * channels}));
  }

 private:
  void add_row(size_t r, const Doubles& row) {
    const double count = static_cast<double>(channels);
    for (const double v : row) mean[r] += v / count;
    double variance = 0, average_g = 0, average_gn = 0;
    for (const double v : row) variance += (v - mean[r]) * (v - mean[r]) / count;
    rstd[r] = 1 / std::sqrt(variance + static_cast<double>(kEps));
    Doubles n(channels), g(channels);
    for (size_t c = 0; c < channels; ++c) {
      const double gradient = static_cast<double>(dy[r * channels + c]), weight = static_cast<double>(gamma[c]);
      n[c] = (row[c] - mean[r]) * rstd[r];
      g[c] = gradient * weight;
      y[r * channels + c] = n[c] * weight + static_cast<double>(beta[c]);
      average_g += g[c] / count;
      average_gn += g[c] * n[c] / count;
      sum_dgamma[c] += gradient * n[c];
      sum_dbeta[c] += gradient;
    }
    for (size_t c = 0; c < channels; ++c) sum_dx[r * channels + c] += rstd[r] * (g[c] - average_g - n[c] * average_gn);
  }
};

struct LayerNormSizes {
  size_t rows, channels;
};
/// One channel; fewer than a warp takes at a time, and than a pack; as a GPT has; rows that a block takes.
inline constexpr LayerNormSizes kLayerNormSizes[] = {{1, 1},     {3, 5},     {7, 33},   {33, 129}, {2, 256},
                                                     {130, 768}, {17, 1600}, {3, 2056}, {2, 4099}};

inline void check_layernorm(kernels::Context& context, double slack = 1) {
  for (const GpuVariant variant : kGpuVariants) {
    for (const LayerNormSizes s : kLayerNormSizes) {
      SCOPED_TRACE(testing::Message() << s.rows << "x" << s.channels << ", " << variant);
      GpuRun run(context, variant, slack);
      const LayerNormCase c(run, s.rows, s.channels);
      const Tensor x = run.typed(c.x, c.shape), gamma = run.typed(c.gamma, c.channel_shape);
      const Tensor y = run.typed_output(c.shape), mean = run.f32_output(c.row_shape),
                   rstd = run.f32_output(c.row_shape);
      kernels::layernorm_forward(context, x, gamma, run.typed(c.beta, c.channel_shape), c.kEps, y, mean, rstd);
      expect_close(run.read(y), c.y, run.tolerance(1e-5), "y");
      expect_close(run.read(mean), c.mean, run.f32_tolerance(1e-5), "mean");
      expect_close(run.read(rstd), c.rstd, run.f32_tolerance(1e-5), "rstd");

      const Tensor dy = run.typed(c.dy, c.shape), dx = run.typed(c.dx, c.shape);
      kernels::layernorm_backward_input(context, dy, x, gamma, mean, rstd, dx);
      expect_close(run.read(dx), c.sum_dx, run.tolerance(3e-5), "dx");
      const Tensor dgamma = run.f32(c.dgamma, c.channel_shape), dbeta = run.f32(c.dbeta, c.channel_shape);
      kernels::layernorm_backward_weight(context, dy, x, mean, rstd, dgamma, dbeta);
      const Floats of_gamma = run.read(dgamma), of_beta = run.read(dbeta);
      expect_close(of_gamma, c.sum_dgamma, run.f32_tolerance(3e-5), "dgamma");
      expect_close(of_beta, c.sum_dbeta, run.f32_tolerance(3e-5), "dbeta");
      // Each alone, with the same bits.
      const Tensor gamma_alone = run.f32(c.dgamma, c.channel_shape), beta_alone = run.f32(c.dbeta, c.channel_shape);
      kernels::layernorm_backward_weight(context, dy, x, mean, rstd, gamma_alone, Tensor());
      kernels::layernorm_backward_weight(context, dy, x, mean, rstd, Tensor(), beta_alone);
      EXPECT_TRUE(same_bits(run.read(gamma_alone), of_gamma));
      EXPECT_TRUE(same_bits(run.read(beta_alone), of_beta));
    }
  }
}

/// 10000 and 10001 in turn: the squares of both are the same to an f32.
inline void check_layernorm_of_large_mean(kernels::Context& context) {
  GpuRun run(context, {DType::F32, 0});
  Floats x(64);
  for (size_t c = 0; c < 64; ++c) x[c] = 10000.0f + static_cast<float>(c % 2);
  const Tensor ones = run.typed(Floats(64, 1.0f), {64}), mean = run.f32_output({1}), rstd = run.f32_output({1});
  kernels::layernorm_forward(context, run.typed(x, {1, 64}), ones, ones, 1e-5f, run.typed_output({1, 64}), mean, rstd);
  EXPECT_NEAR(run.read(rstd)[0], 2.0, 1e-3);
}

/// The sum has the CPU's mask, and is the same in place; the norm is that of the sum as it is stored.
inline void check_residual_layernorm(kernels::Context& context, double slack = 1) {
  for (const float probability : {0.0f, 0.25f}) {
    const kernels::DropoutSite site{probability, 1234, 17, 2, 1};
    for (const GpuVariant variant : kGpuVariants) {
      for (const int64_t channels : {1, 33, 132, 256, 2056}) {
        SCOPED_TRACE(testing::Message() << channels << " channels, " << variant << ", probability " << probability);
        GpuRun run(context, variant, slack);
        const GpuTokenRows rows(context, {nullptr, 3, 5, 2, 0});
        LayerNormCase c(run, 15, static_cast<size_t>(channels));
        const Tensor x = run.typed(c.x, c.shape), residual = run.typed(c.dx, c.shape);
        const Floats mask = dropout_mask_of_cpu(site, rows.on_cpu, channels);
        Doubles expected = to_doubles(c.dx);
        for (size_t i = 0; i < mask.size(); ++i)
          expected[i] += static_cast<double>(c.x[i]) * static_cast<double>(mask[i]);
        const auto check = [&](const Tensor& sum) {
          const Tensor y = run.typed_output(c.shape), mean = run.f32_output(c.row_shape);
          const Tensor rstd = run.f32_output(c.row_shape);
          kernels::residual_layernorm_forward(context, site, rows.on_gpu, x, residual,
                                              run.typed(c.gamma, c.channel_shape), run.typed(c.beta, c.channel_shape),
                                              c.kEps, sum, y, mean, rstd);
          expect_close(run.read(sum), expected, run.tolerance(1e-6), "sum");
          c.work_out(run.read(sum));
          expect_close(run.read(y), c.y, run.tolerance(1e-5), "y");
          expect_close(run.read(mean), c.mean, run.f32_tolerance(1e-5), "mean");
          expect_close(run.read(rstd), c.rstd, run.f32_tolerance(1e-5), "rstd");
        };
        const Tensor apart = run.typed_output(c.shape);
        check(apart);
        check(x);
        EXPECT_TRUE(same_bits(run.read(x), run.read(apart)));
      }
    }
  }
}

}  // namespace sixfold::test
