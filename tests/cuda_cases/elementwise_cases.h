#pragma once

#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// Sizes around a pack, and one that threads of a GPU take in several turns.
inline constexpr int64_t kElementSizes[] = {0, 1, 3, 4, 33, 129, 1000};

/// Forward and backward, the latter also in place, against the formula's own derivative in double precision.
inline void check_gelu(kernels::Context& context, double slack = 1) {
  const double scale = std::sqrt(2 / 3.14159265358979323846);
  for (const GpuVariant variant : kGpuVariants) {
    for (const int64_t n : kElementSizes) {
      SCOPED_TRACE(testing::Message() << variant << ", " << n);
      GpuRun run(context, variant, slack);
      const Floats x = random_floats(n, 1, 3.0), dy = random_floats(n, 2);
      const Tensor xt = run.typed(x, {n}), dyt = run.typed(dy, {n}), y = run.typed_output({n}),
                   dx = run.typed_output({n});
      kernels::gelu_forward(context, xt, y);
      kernels::gelu_backward(context, dyt, xt, dx);
      kernels::gelu_backward(context, dyt, xt, dyt);
      Doubles forward, backward = to_doubles(run.rounded(dy));
      for (const double v : to_doubles(run.rounded(x))) {
        const double t = std::tanh(scale * (v + 0.044715 * v * v * v)), u = scale * (1 + 3 * 0.044715 * v * v);
        backward[forward.size()] *= 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * u;
        forward.push_back(0.5 * v * (1 + t));
      }
      expect_close(run.read(y), forward, run.tolerance(1e-6), "y");
      expect_close(run.read(dx), backward, run.tolerance(1e-5), "dx");
      EXPECT_EQ(run.read(dyt), run.read(dx));
    }
  }
}

/// One addition an element, in f32 whatever is added.
inline void check_accumulate(kernels::Context& context) {
  for (const GpuVariant variant : kGpuVariants) {
    for (const int64_t n : kElementSizes) {
      SCOPED_TRACE(testing::Message() << variant << ", " << n);
      GpuRun run(context, variant);
      const Floats added = random_floats(n, 1), start = random_floats(n, 2);
      const Tensor sum = run.f32(start, {n});
      kernels::accumulate(context, run.typed(added, {n}), sum);
      Floats expected = start;
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += run.rounded(added)[i];
      EXPECT_EQ(run.read(sum), expected);
      EXPECT_THROW(kernels::accumulate(context, run.typed_output({n + 1}), sum), CheckError);
    }
  }
}

/// To bf16 by rounding to nearest, ties to even, and back exactly: the values of kernels_elementwise_test.cpp,
/// repeated.
inline void check_convert(kernels::Context& context) {
  const float inf = std::numeric_limits<float>::infinity();
  const Floats values = {0, -0.0f, 1, 1.0078125f, 1.00390625f, 1.01171875f, -3.0f, 0x1p-130f, inf, -inf, 1.5f};
  const Floats rounded = {0, -0.0f, 1, 1.0078125f, 1, 1.015625f, -3.0f, 0x1p-130f, inf, -inf, 1.5f};
  for (const int64_t shift : {0, 1}) {
    for (const int64_t n : kElementSizes) {
      SCOPED_TRACE(testing::Message() << n << ", shift " << shift);
      Floats wide, expected;
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        wide.push_back(values[i % values.size()]);
        expected.push_back(rounded[i % rounded.size()]);
      }
      GpuRun run(context, {DType::BF16, shift});
      const Tensor narrow = run.typed_output({n}), back = run.f32_output({n});
      kernels::convert(context, run.f32(wide, {n}), narrow);
      kernels::convert(context, narrow, back);
      EXPECT_TRUE(same_bits(run.read(back), expected));
      EXPECT_TRUE(same_bits(run.read(narrow), expected));
      EXPECT_THROW(kernels::convert(context, back, back), CheckError);  // nothing to convert
    }
  }
  GpuRun run(context, {DType::BF16, 0});
  const Tensor narrow = run.typed_output({1});
  kernels::convert(context, run.f32({kPoison}, {1}), narrow);
  EXPECT_TRUE(std::isnan(run.read(narrow)[0]));
}

inline void check_swap_dims(kernels::Context& context) {
  struct Case {
    int64_t a, b, n;
  };
  for (const GpuVariant variant : kGpuVariants) {
    for (const Case& c : {Case{1, 1, 1}, Case{3, 5, 7}, Case{30, 4, 33}, Case{1, 6, 5}, Case{2, 3, 300}, Case{0, 3, 2},
                          Case{2, 3, 0}}) {
      SCOPED_TRACE(testing::Message() << variant << ", " << c.a << "x" << c.b << "x" << c.n);
      GpuRun run(context, variant);
      const Floats in = run.rounded(random_floats(c.a * c.b * c.n, 1));
      const Tensor out = run.typed_output({c.b, c.a, c.n});
      kernels::swap_dims(context, run.typed(in, {c.a, c.b, c.n}), out);
      const Floats swapped = run.read(out);
      for (int64_t i = 0; i < c.a * c.b * c.n; ++i) {
        const int64_t j = i / (c.b * c.n), k = i / c.n % c.b, l = i % c.n;
        ASSERT_EQ(swapped[static_cast<size_t>((k * c.a + j) * c.n + l)], in[static_cast<size_t>(i)]) << i;
      }
    }
  }
  GpuRun run(context, kGpuVariants[0]);
  EXPECT_THROW(kernels::swap_dims(context, run.f32_output({2, 3, 4}), run.f32_output({2, 3, 4})), CheckError);
}

}  // namespace sixfold::test
