#pragma once

#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// Sizes around a pack, and two that take several blocks.
inline constexpr int64_t kOptimizerSizes[] = {0, 1, 3, 33, 129, 16384, 40001};

/// Weights as kernels read them, of those in f32.
inline void expect_rounded(const Floats& rounded, const Floats& weights) {
  ASSERT_EQ(rounded.size(), weights.size());
  for (size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(rounded[i], static_cast<float>(BF16(weights[i]))) << i;
}

/// Several steps against the recurrence of torch.optim.AdamW in double precision: decay first, then the moments, both
/// corrected for their start at zero, eps outside the root.
inline void check_adamw(kernels::Context& context, double slack = 1) {
  constexpr double kLr = 1e-2, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1, kScale = 0.5;
  for (const int64_t shift : {0, 1}) {
    for (const int64_t n : kOptimizerSizes) {
      SCOPED_TRACE(testing::Message() << n << ", shift " << shift);
      GpuRun run(context, {DType::BF16, shift}, slack);
      const Floats w0 = random_floats(n, 1), zeros(w0.size(), 0.0f);
      const Tensor w = run.f32(w0, {n}), m = run.f32(zeros, {n}), v = run.f32(zeros, {n});
      const Tensor rounded = run.typed_output({n});
      Doubles w_ref = to_doubles(w0), m_ref(w_ref.size(), 0.0), v_ref(w_ref.size(), 0.0);
      for (int step = 1; step <= 4; ++step) {
        const Floats g = random_floats(n, 10 + static_cast<uint32_t>(step), 0.01);
        kernels::adamw_update(context, {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, step}, run.f32({0.5f}, {1}), run.f32(g, {n}),
                              w, m, v, step < 4 ? Tensor() : rounded);
        for (size_t i = 0; i < g.size(); ++i) {
          const double gi = static_cast<double>(g[i]) * kScale;
          w_ref[i] *= 1 - kLr * kDecay;
          m_ref[i] = kBeta1 * m_ref[i] + (1 - kBeta1) * gi;
          v_ref[i] = kBeta2 * v_ref[i] + (1 - kBeta2) * gi * gi;
          const double m_hat = m_ref[i] / (1 - std::pow(kBeta1, step)), v_hat = v_ref[i] / (1 - std::pow(kBeta2, step));
          w_ref[i] -= kLr * m_hat / (std::sqrt(v_hat) + kEps);
        }
      }
      expect_close(run.read(w), w_ref, run.f32_tolerance(1e-6), "w");
      expect_close(run.read(m), m_ref, run.f32_tolerance(1e-8), "m");
      expect_close(run.read(v), v_ref, run.f32_tolerance(1e-10), "v");
      expect_rounded(run.read(rounded), run.read(w));
    }
  }
  GpuRun run(context, kGpuVariants[0]);
  const Tensor t = run.f32_output({2});
  EXPECT_THROW(kernels::adamw_update(context, {.step = 0}, {}, t, t, t, t), CheckError);
  EXPECT_THROW(kernels::adamw_update(context, {}, {}, t, t, t, t, t), CheckError);  // rounded is bf16
}

inline void check_sgd(kernels::Context& context, double slack = 1) {
  for (const int64_t shift : {0, 1}) {
    for (const int64_t n : kOptimizerSizes) {
      SCOPED_TRACE(testing::Message() << n << ", shift " << shift);
      GpuRun run(context, {DType::BF16, shift}, slack);
      const Floats w0 = random_floats(n, 1), g = random_floats(n, 2);
      const Tensor w = run.f32(w0, {n}), alone = run.f32(w0, {n}), rounded = run.typed_output({n});
      kernels::sgd_update(context, 0.25f, 0.125f, run.f32({0.5f}, {1}), run.f32(g, {n}), w, rounded);
      kernels::sgd_update(context, 0.25f, 0.125f, run.f32({0.5f}, {1}), run.f32(g, {n}), alone);
      Doubles expected = to_doubles(w0);
      for (size_t i = 0; i < g.size(); ++i)
        expected[i] -= 0.25 * 0.5 * static_cast<double>(g[i]) + 0.25 * 0.125 * expected[i];
      expect_close(run.read(w), expected, run.f32_tolerance(1e-6), "w");
      EXPECT_TRUE(same_bits(run.read(alone), run.read(w)));
      expect_rounded(run.read(rounded), run.read(w));
    }
  }
}

/// A factor that is NaN leaves everything as it was.
inline void check_skipped_update(kernels::Context& context) {
  GpuRun run(context, kGpuVariants[0]);
  const Floats before = random_floats(9, 1);
  const Tensor w = run.f32(before, {9}), m = run.f32(before, {9}), v = run.f32(before, {9});
  const Tensor g = run.f32(random_floats(9, 2), {9}), scale = run.f32({kPoison}, {1});
  const Tensor rounded = kernels::zeros(context, {9}, DType::BF16, Category::Other);
  kernels::adamw_update(context, {.lr = 1, .weight_decay = 0.1f}, scale, g, w, m, v, rounded);
  kernels::sgd_update(context, 1, 0.1f, scale, g, w, rounded);
  for (const Tensor& t : {w, m, v}) EXPECT_TRUE(same_bits(run.read(t), before));
  EXPECT_EQ(run.read(rounded), Floats(9, 0.0f));
}

}  // namespace sixfold::test
