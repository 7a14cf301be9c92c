#include "tests/kernels_harness.h"

namespace sixfold {
namespace {

using namespace test;

constexpr int64_t kSizes[] = {1, 5, 33, 384, 40001};

TEST(KernelsAdamW, EqualsTheRecurrenceInDouble) {
  for (const int64_t n : kSizes) {
    constexpr int kSteps = 7;
    const double lr = 1e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, scale = 0.5;
    const Floats w0 = random_floats(n, 1), zeros(static_cast<size_t>(n), 0.0f);
    const auto gradient = [&](int step) { return random_floats(n, 10 + static_cast<uint32_t>(step), 0.01); };
    const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
      const Tensor w = run.output(w0, {n}), m = run.output(zeros, {n}), v = run.output(zeros, {n});
      for (int step = 1; step <= kSteps; ++step) {
        const kernels::AdamWParams params{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, step};
        kernels::adamw_update(run.context, params, run.input(Floats{0.5f}, {1}), run.input(gradient(step), {n}), w, m,
                              v);
      }
    });
    // torch.optim.AdamW: decay first, then the moments, both corrected for their start at zero, eps outside the root.
    Doubles w = to_doubles(w0), m(w.size(), 0.0), v(w.size(), 0.0);
    for (int step = 1; step <= kSteps; ++step) {
      const Floats g = gradient(step);
      for (size_t i = 0; i < w.size(); ++i) {
        const double gi = static_cast<double>(g[i]) * scale;
        w[i] *= 1 - lr * decay;
        m[i] = beta1 * m[i] + (1 - beta1) * gi;
        v[i] = beta2 * v[i] + (1 - beta2) * gi * gi;
        const double m_hat = m[i] / (1 - std::pow(beta1, step)), v_hat = v[i] / (1 - std::pow(beta2, step));
        w[i] -= lr * m_hat / (std::sqrt(v_hat) + eps);
      }
    }
    expect_close(out[0], w, 1e-6, "w");
    expect_close(out[1], m, 1e-8, "m");
    expect_close(out[2], v, 1e-10, "v");
  }
}

TEST(KernelsAdamW, FirstStepMovesByTheLearningRateAndZeroGradientOnlyDecays) {
  KernelRun run(1, 0);
  const Tensor w = run.output({1.0f, 1.0f, 1.0f}, {3}), m = run.output({0.0f, 0.0f, 0.0f}, {3});
  const Tensor v = run.output({0.0f, 0.0f, 0.0f}, {3});
  kernels::adamw_update(run.context, {0.1f, 0.9f, 0.999f, 1e-8f, 0.5f, 1}, {},
                        run.input(Floats{3.0f, -1e-3f, 0.0f}, {3}), w, m, v);
  const float* x = w.data<float>();
  EXPECT_NEAR(x[0], 0.95 - 0.1, 1e-5);  // m_hat / sqrt(v_hat) is the sign of the gradient
  EXPECT_NEAR(x[1], 0.95 + 0.1, 1e-5);
  EXPECT_NEAR(x[2], 0.95, 1e-7);
}

TEST(KernelsSgd, EqualsFormula) {
  for (const int64_t n : kSizes) {
    const Floats w0 = random_floats(n, 1), g = random_floats(n, 2);
    const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
      kernels::sgd_update(run.context, 0.25f, 0.125f, run.input(Floats{0.5f}, {1}), run.input(g, {n}),
                          run.output(w0, {n}));
    });
    Doubles w = to_doubles(w0);
    for (size_t i = 0; i < w.size(); ++i) w[i] -= 0.25 * 0.5 * static_cast<double>(g[i]) + 0.25 * 0.125 * w[i];
    expect_close(out[0], w, 1e-6, "w");
  }
}

}  // namespace
}  // namespace sixfold
