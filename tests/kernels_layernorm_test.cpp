#include "tests/kernels_harness.h"

namespace sixfold {
namespace {

using namespace test;

constexpr float kEps = 1e-5f;
struct Sizes {
  size_t rows, channels;
  Shape shape() const { return {static_cast<int64_t>(rows), static_cast<int64_t>(channels)}; }
  Shape row_shape() const { return {static_cast<int64_t>(rows)}; }
  Shape channel_shape() const { return {static_cast<int64_t>(channels)}; }
  int64_t numel() const { return static_cast<int64_t>(rows * channels); }
};
constexpr Sizes kSizes[] = {{1, 1}, {3, 5}, {7, 33}, {1, 384}, {300, 17}, {130, 384}};

struct Reference {
  Doubles y, mean, rstd;
};
Reference reference_layernorm(const Sizes& s, const Doubles& x, const Doubles& gamma, const Doubles& beta) {
  Reference out{Doubles(x.size()), Doubles(s.rows), Doubles(s.rows)};
  for (size_t r = 0; r < s.rows; ++r) {
    const double* row = x.data() + r * s.channels;
    double mean = 0, variance = 0;
    for (size_t c = 0; c < s.channels; ++c) mean += row[c];
    mean /= static_cast<double>(s.channels);
    for (size_t c = 0; c < s.channels; ++c) variance += (row[c] - mean) * (row[c] - mean);
    variance /= static_cast<double>(s.channels);
    const double rstd = 1 / std::sqrt(variance + static_cast<double>(kEps));
    for (size_t c = 0; c < s.channels; ++c) out.y[r * s.channels + c] = (row[c] - mean) * rstd * gamma[c] + beta[c];
    out.mean[r] = mean;
    out.rstd[r] = rstd;
  }
  return out;
}

struct Inputs {
  Floats x, gamma, beta, dy;
  explicit Inputs(const Sizes& s)
      : x(random_floats(s.numel(), 1, 2.0)),
        gamma(random_floats(static_cast<int64_t>(s.channels), 2)),
        beta(random_floats(static_cast<int64_t>(s.channels), 3)),
        dy(random_floats(s.numel(), 4)) {
    for (float& v : x) v += 3.0f;  // a mean that must be taken off
  }
};

/// Outputs: y, mean, rstd.
std::vector<Floats> run_forward(const Sizes& s, const Inputs& in) {
  return run_kernel([&](KernelRun& run) {
    const Tensor x = run.input(in.x, s.shape()), gamma = run.input(in.gamma, s.channel_shape());
    const Tensor y = run.output(s.shape()), mean = run.output(s.row_shape()), rstd = run.output(s.row_shape());
    kernels::layernorm_forward(run.context, x, gamma, run.input(in.beta, s.channel_shape()), kEps, y, mean, rstd);
  });
}

TEST(KernelsLayerNorm, ForwardEqualsReference) {
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.rows << "x" << s.channels);
    const Inputs in(s);
    const std::vector<Floats> out = run_forward(s, in);
    const Reference expected = reference_layernorm(s, to_doubles(in.x), to_doubles(in.gamma), to_doubles(in.beta));
    expect_close(out[0], expected.y, 1e-5, "y");
    expect_close(out[1], expected.mean, 1e-6, "mean");
    expect_close(out[2], expected.rstd, 1e-5, "rstd");
  }
}

TEST(KernelsLayerNorm, LargeMeanDoesNotCancel) {
  const Sizes s{1, 64};
  Inputs in(s);
  for (size_t c = 0; c < 64; ++c) in.x[c] = 10000.0f + static_cast<float>(c % 2);  // variance 1/4
  const std::vector<Floats> out = run_forward(s, in);
  EXPECT_NEAR(out[2][0], 2.0, 1e-3);
}

TEST(KernelsLayerNorm, BackwardEqualsNumericGradient) {
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.rows << "x" << s.channels);
    const Inputs in(s);
    const Floats residual(in.x.size(), 0.5f), dgamma0(s.channels, -2.0f), dbeta0(s.channels, 4.0f);
    const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
      const Tensor x = run.input(in.x, s.shape()), gamma = run.input(in.gamma, s.channel_shape());
      const Tensor dy = run.input(in.dy, s.shape());
      const Tensor y = run.output(s.shape()), mean = run.output(s.row_shape()), rstd = run.output(s.row_shape());
      kernels::layernorm_forward(run.context, x, gamma, run.input(in.beta, s.channel_shape()), kEps, y, mean, rstd);
      kernels::layernorm_backward_input(run.context, dy, x, gamma, mean, rstd, run.output(residual, s.shape()));
      const Tensor dgamma = run.output(dgamma0, s.channel_shape()), dbeta = run.output(dbeta0, s.channel_shape());
      kernels::layernorm_backward_weight(run.context, dy, x, mean, rstd, dgamma, dbeta);
    });
    const Doubles xd = to_doubles(in.x), gd = to_doubles(in.gamma), bd = to_doubles(in.beta), dyd = to_doubles(in.dy);
    Floats dx = out[3], dgamma = out[4], dbeta = out[5];
    for (float& v : dx) v -= 0.5f;
    for (float& v : dgamma) v += 2.0f;
    for (float& v : dbeta) v -= 4.0f;
    if (s.channels > 1)  // one channel is always 0 after normalisation: its difference quotient is rounding noise
      expect_gradient([&](const Doubles& v) { return dot(dyd, reference_layernorm(s, v, gd, bd).y); }, in.x, dx, 3e-5,
                      "dx");
    expect_gradient([&](const Doubles& v) { return dot(dyd, reference_layernorm(s, xd, v, bd).y); }, in.gamma, dgamma,
                    3e-5, "dgamma");
    expect_gradient([&](const Doubles& v) { return dot(dyd, reference_layernorm(s, xd, gd, v).y); }, in.beta, dbeta,
                    3e-5, "dbeta");
  }
}

}  // namespace
}  // namespace sixfold
