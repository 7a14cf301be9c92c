#pragma once

#include <numeric>

#include "kernels/fixed_point.h"
#include "tests/cuda_cases/gpu_run.h"
#include "tests/numbers.h"

namespace sixfold::test {

/// Exact where double precision is; the same bits at any address and every time.
inline void check_sum_of_squares(kernels::Context& context) {
  for (const int64_t n : {0, 1, 3, 33, 129, 16384, 40001}) {
    SCOPED_TRACE(n);
    Floats small(static_cast<size_t>(n));
    double of_small = 0, of_large = 0;
    for (size_t i = 0; i < small.size(); ++i) {
      small[i] = static_cast<float>(i % 1000) + 1;
      of_small += static_cast<double>(small[i]) * static_cast<double>(small[i]);
    }
    const Floats large = random_floats(n, 1, 1e25);  // whose squares overflow an f32
    for (const double v : to_doubles(large)) of_large += v * v;
    GpuRun aligned(context, {DType::F32, 0});
    for (const auto how : {kernels::SquareSums::ByTensor, kernels::SquareSums::ByElement}) {
      const double first = sum_of_squares(context, {aligned.f32(large, {n})}, how);
      EXPECT_NEAR(first, of_large, 1e-13 * of_large);
      for (const int64_t shift : {0, 1, 4, 7}) {
        GpuRun run(context, {DType::F32, shift});
        // What follows is no part of it.
        Floats padded = small;
        padded.insert(padded.end(), 5, kPoison);
        EXPECT_EQ(sum_of_squares(context, {run.f32(padded, {n + 5}).slice(0, {n})}, how), of_small) << shift;
        EXPECT_EQ(sum_of_squares(context, {run.f32(large, {n})}, how), first) << shift;
        EXPECT_EQ(sum_of_squares(context, {run.f32({3}, {1}), run.f32({}, {0}), run.f32({4}, {1})}, how), 25.0);
      }
      EXPECT_TRUE(std::isnan(sum_of_squares(context, {aligned.f32({1.0f, kPoison}, {2})}, how)));
    }
  }
}

/// By element, squares of every magnitude add up to the same bits however they are cut: to those of an ExactSum of one
/// square after the other.
inline void check_exact_sum_of_squares(kernels::Context& context) {
  GpuRun run(context, {DType::F32, 0});
  constexpr int64_t kCount = 50000;
  Floats values = random_floats(kCount, 3);
  kernels::ExactSum expected;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(i % 80) - 40);
    expected.add(static_cast<double>(values[i]) * static_cast<double>(values[i]));
  }
  const Tensor x = run.f32(values, {kCount});
  const auto by_element = kernels::SquareSums::ByElement;
  EXPECT_EQ(sum_of_squares(context, {x}, by_element), expected.value());
  EXPECT_EQ(sum_of_squares(context, {x.slice(30001, {kCount - 30001}), x.slice(0, {30001})}, by_element),
            expected.value());
  // It adds to what is there, and leaves no carries.
  const Tensor sum = empty_sum(context);
  for (int round = 0; round < 2; ++round) kernels::add_squares(context, {x}, by_element, sum);
  EXPECT_EQ(value_of_sum(context, sum), 2 * expected.value());
  const Tensor words = kernels::on_host(context, sum);
  for (int i = 0; i < kernels::ExactSum::kNumWords; ++i) EXPECT_LT(words.data<int64_t>()[i], int64_t{1} << 32);
}

inline Tensor whole_numbers(kernels::Context& context, std::vector<int64_t> values) {
  const Tensor t = Tensor::empty({static_cast<int64_t>(values.size())}, DType::I64, context.memory, Category::Other);
  kernels::from_host(context, Tensor::view(values.data(), t.shape(), DType::I64), t);
  return t;
}

inline void check_reciprocal(kernels::Context& context) {
  GpuRun run(context, kGpuVariants[0]);
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{524288}, (int64_t{1} << 40) + 1}) {
    const Tensor y = run.f32_output({1});
    kernels::reciprocal(context, whole_numbers(context, {count}), y);
    EXPECT_EQ(run.read(y)[0], count == 0 ? 0.0f : 1.0f / static_cast<float>(count));
  }
}

inline void check_fixed_point(kernels::Context& context) {
  GpuRun run(context, kGpuVariants[0]);
  const auto value_of = [&](const Floats& values, int num_ranks) {
    const Tensor sum = whole_numbers(context, {-1, -1});
    kernels::to_fixed_point(context, run.f32(values, {static_cast<int64_t>(values.size())}), num_ranks, sum);
    const Tensor host = kernels::on_host(context, sum);
    EXPECT_EQ(host.data<int64_t>()[1] == 0, host.data<int64_t>()[0] != 0 || values == Floats{});
    return kernels::FixedPoint{host.data<int64_t>()[0], host.data<int64_t>()[1]}.value();
  };
  EXPECT_EQ(value_of({}, 4), 0.0);
  EXPECT_EQ(value_of({0x1p-32f}, 4), 0x1p-32);
  EXPECT_EQ(value_of({16777216.0f, 1.0f, -0.5f}, 4), 16777216.5);  // in f32, 1 is lost
  EXPECT_EQ(value_of({0x1p30f}, 1), 0x1p30);
  EXPECT_TRUE(std::isnan(value_of({0x1p30f}, 2)));
  EXPECT_TRUE(std::isnan(value_of({1.0f, kPoison}, 1)));
  EXPECT_TRUE(std::isnan(value_of({-INFINITY}, 1)));
}

/// Of sqrt(25) = 5 and others whose factor is a short fraction.
inline void check_clip_factor(kernels::Context& context) {
  GpuRun run(context, kGpuVariants[0]);
  const auto factor = [&](const Floats& gradients, double max_norm) {
    const Tensor sum = empty_sum(context), scale = run.f32_output({1});
    kernels::add_squares(context, {run.f32(gradients, {static_cast<int64_t>(gradients.size())})},
                         kernels::SquareSums::ByTensor, sum);
    kernels::clip_factor(context, sum, max_norm, scale);
    return run.read(scale)[0];
  };
  EXPECT_EQ(factor({3, 4}, 1), 0.2f);
  EXPECT_EQ(factor({3, 4}, 5), 1.0f);
  EXPECT_EQ(factor({3, 4}, 6), 1.0f);
  EXPECT_EQ(factor({3, 4}, 0), 1.0f);  // 0: off
  EXPECT_EQ(factor({0, 0}, 1), 1.0f);
  EXPECT_EQ(factor({3e30f, -4e30f}, 5e30), 1.0f);  // squares do not fit an f32
  EXPECT_EQ(factor({0x1p100f}, 0x1p98), 0.25f);
  EXPECT_EQ(factor({0x1p-149f}, 0x1p-150), 0.5f);
  for (const double max_norm : {0.0, 1.0}) {
    EXPECT_TRUE(std::isnan(factor({3, kPoison}, max_norm)));
    EXPECT_TRUE(std::isnan(factor({INFINITY, 1}, max_norm)));
  }
  EXPECT_THROW(factor({3, 4}, -1), CheckError);
}

}  // namespace sixfold::test
