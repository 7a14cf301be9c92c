#include "tests/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sixfold::train {
namespace {

struct GradientNorm : testing::Test {
  parallel::UpdateSegment segment(const std::vector<float>& grads) {
    const auto count = static_cast<int64_t>(grads.size());
    parallel::UpdateSegment s;
    s.grad = Tensor::empty({count}, DType::F32, memory, Category::Gradients);
    std::copy(grads.begin(), grads.end(), s.grad.data<float>());
    return s;
  }
  double norm(const std::vector<std::vector<float>>& grads) {
    std::vector<parallel::UpdateSegment> segments;
    for (const auto& g : grads) segments.push_back(segment(g));
    const double rounded = test::gradient_sum_of_squares(context, segments, {}, kernels::SquareSums::ByTensor);
    const double exact = test::gradient_sum_of_squares(context, segments, {}, kernels::SquareSums::ByElement);
    EXPECT_NEAR(exact, rounded, 1e-15 * rounded);
    return std::sqrt(rounded);
  }
  Memory memory;
  kernels::Context context{memory};
};

TEST_F(GradientNorm, NormIsOverAllSegments) {
  EXPECT_EQ(norm({{3}, {4}}), 5.0);
  EXPECT_EQ(norm({{3, 4}}), 5.0);
  EXPECT_EQ(norm({{1, -2}, {}, {2, 4, 4}, {-8}, {4, 6, 10}}), std::sqrt(257.0));
  EXPECT_EQ(norm({}), 0.0);
}

TEST_F(GradientNorm, NormIsSummedInDouble) {
  // Squares of 1e30 do not fit an f32, and 1 + 2^-30 is 1 there.
  EXPECT_NEAR(norm({{1e30f, 1e30f}}) / (std::sqrt(2.0) * static_cast<double>(1e30f)), 1.0, 1e-12);
  EXPECT_NEAR(norm({{1}, {0x1p-15f}}), std::sqrt(1 + 0x1p-30), 1e-15);
  EXPECT_GT(norm({{1}, {0x1p-15f}}), 1.0);
}

TEST_F(GradientNorm, NonFiniteGradientsAreSeen) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max();
  for (const kernels::SquareSums how : test::kSquareSums) {
    const auto sum = [&](const std::vector<parallel::UpdateSegment>& segments) {
      return test::gradient_sum_of_squares(context, segments, {}, how);
    };
    for (float bad : {inf, -inf, nan}) {
      for (const std::vector<float>& grads : {std::vector<float>{bad, 1, 2}, std::vector<float>{1, 2, bad}}) {
        EXPECT_TRUE(std::isnan(sum({segment({1}), segment(grads)})));
      }
    }
    EXPECT_TRUE(std::isfinite(sum({segment({largest, -largest, largest})})));
  }
}

}  // namespace
}  // namespace sixfold::train
