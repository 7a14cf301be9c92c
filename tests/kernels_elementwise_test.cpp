#include "kernels/vector_math.h"
#include "tests/kernels_harness.h"

namespace sixfold {
namespace {

using namespace test;

constexpr int64_t kSizes[] = {0, 1, 5, 33, 384, 40001};  // the last: several pieces

double reference_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

TEST(KernelsVectorMath, ExpIsWithin2e7OfLibm) {
  double worst = 0;
  for (int i = -87000; i <= 88000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    const double expected = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(kernels::exp_f32(x)) - expected) / expected);
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(kernels::exp_f32(0.0f), 1.0f);
  EXPECT_EQ(kernels::exp_f32(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(kernels::exp_f32(-1000.0f), 0.0f);
  EXPECT_GT(kernels::exp_f32(1000.0f), 1e38f);
  EXPECT_TRUE(std::isnan(kernels::exp_f32(kPoison)));
}

TEST(KernelsGelu, ForwardEqualsReference) {
  for (const int64_t n : kSizes) {
    const Floats x = random_floats(n, 1, 3.0);
    const std::vector<Floats> out =
        run_kernel([&](KernelRun& run) { kernels::gelu_forward(run.context, run.input(x, {n}), run.output({n})); });
    Doubles expected;
    for (float v : x) expected.push_back(reference_gelu(static_cast<double>(v)));
    expect_close(out[0], expected, 1e-6, "gelu");
  }
}

TEST(KernelsGelu, LimitsAndNaN) {
  const Floats x = {-1e4f, -50.0f, 0.0f, 50.0f, 1e4f, kPoison};
  KernelRun run(1, 0);
  kernels::gelu_forward(run.context, run.input(x, {6}), run.output({6}));
  kernels::gelu_backward(run.context, run.input(Floats(6, 1.0f), {6}), run.input(x, {6}), run.output({6}));
  const std::vector<Floats> out = run.outputs();
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_FLOAT_EQ(out[0][i], x[i] > 0 ? x[i] : 0.0f);
    EXPECT_FLOAT_EQ(out[1][i], x[i] > 0 ? 1.0f : x[i] == 0.0f ? 0.5f : 0.0f);
  }
  EXPECT_TRUE(std::isnan(out[0][5]));
  EXPECT_TRUE(std::isnan(out[1][5]));
}

TEST(KernelsGelu, BackwardEqualsNumericGradientAlsoInPlace) {
  for (const int64_t n : kSizes) {
    if (n == 0) continue;
    const Floats x = random_floats(n, 1, 2.0), dy = random_floats(n, 2);
    const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
      kernels::gelu_backward(run.context, run.input(dy, {n}), run.input(x, {n}), run.output({n}));
      const Tensor in_place = run.output(dy, {n});
      kernels::gelu_backward(run.context, in_place, run.input(x, {n}), in_place);
    });
    const auto loss = [&](const Doubles& v) {
      double sum = 0;
      for (size_t i = 0; i < v.size(); ++i) sum += static_cast<double>(dy[i]) * reference_gelu(v[i]);
      return sum;
    };
    expect_gradient(loss, x, out[0], 2e-6, "dx");
    EXPECT_EQ(out[1], out[0]);
  }
}

TEST(KernelsAccumulate, AddsOnce) {
  for (const int64_t n : kSizes) {
    const Floats a = random_floats(n, 1), b = random_floats(n, 2);
    const std::vector<Floats> out =
        run_kernel([&](KernelRun& run) { kernels::accumulate(run.context, run.input(a, {n}), run.output(b, {n})); });
    Floats expected = b;
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += a[i];
    EXPECT_EQ(out[0], expected);
  }
  KernelRun run(1, 0);
  EXPECT_THROW(kernels::accumulate(run.context, run.output({3}), run.output({4})), CheckError);
}

TEST(KernelsSwapDims, EachBlockGoesToItsPlace) {
  struct Case {
    int64_t a, b, n;
  };
  for (const Case& c : {Case{1, 1, 1}, Case{3, 5, 7}, Case{300, 4, 33}, Case{1, 6, 5}, Case{0, 3, 2}, Case{2, 3, 0}}) {
    const Floats in = random_floats(c.a * c.b * c.n, 1);
    const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
      kernels::swap_dims(run.context, run.input(in, {c.a, c.b, c.n}), run.output({c.b, c.a, c.n}));
    });
    for (int64_t i = 0; i < c.a * c.b * c.n; ++i) {
      const int64_t j = i / (c.b * c.n), k = i / c.n % c.b, l = i % c.n;
      ASSERT_EQ(out[0][static_cast<size_t>((k * c.a + j) * c.n + l)], in[static_cast<size_t>(i)]);
    }
  }
  KernelRun run(1, 0);
  EXPECT_THROW(kernels::swap_dims(run.context, run.output({2, 3, 4}), run.output({2, 3, 4})), CheckError);
}

// Numbers that bf16 (8 bits of mantissa) holds, lies between two of, and rounds to even.
TEST(KernelsConvert, RoundsToBf16AndBackAndAddsIt) {
  const float inf = std::numeric_limits<float>::infinity();
  const Floats values = {0, -0.0f, 1, 1.0078125f, 1.00390625f, 1.01171875f, -3.0f, 0x1p-130f, inf, -inf};
  const Floats rounded = {0, -0.0f, 1, 1.0078125f, 1, 1.015625f, -3.0f, 0x1p-130f, inf, -inf};
  const auto n = static_cast<int64_t>(values.size());
  KernelRun run(1, 0);
  const Tensor wide = run.input(values, {n}), back = run.output({n});
  const Tensor narrow = Tensor::empty({n}, DType::BF16, run.context.memory, Category::Other);
  kernels::convert(run.context, wide, narrow);
  kernels::convert(run.context, narrow, back);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(back.data<float>()[i], rounded[i]) << i;
  const Tensor sum = run.output(Floats(values.size(), 1.0f), {n});
  kernels::accumulate(run.context, narrow, sum);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sum.data<float>()[i], 1 + rounded[i]) << i;
  EXPECT_THROW(kernels::convert(run.context, wide, back), CheckError);  // nothing to convert
  EXPECT_THROW(kernels::convert(run.context, run.output({3}), narrow), CheckError);
}

}  // namespace
}  // namespace sixfold
