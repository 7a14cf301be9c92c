#include "runtime/train/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sixfold::train {
namespace {

struct ClipTest : testing::Test {
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
    const double in_segments = gradient_sum_of_squares(context, segments, nullptr, NormOrder::Segments);
    const double exact = gradient_sum_of_squares(context, segments, nullptr, NormOrder::None);
    if (std::isfinite(in_segments)) {
      EXPECT_NEAR(exact, in_segments, 1e-15 * in_segments);
    } else {
      EXPECT_FALSE(std::isfinite(exact));
    }
    return clip_factor(in_segments, 0).norm;
  }
  Memory memory;
  kernels::Context context{memory};
};

TEST_F(ClipTest, NormIsOverAllSegments) {
  EXPECT_EQ(norm({{3}, {4}}), 5.0);
  EXPECT_EQ(norm({{3, 4}}), 5.0);
  EXPECT_EQ(norm({{1, -2}, {}, {2, 4, 4}, {-8}, {4, 6, 10}}), std::sqrt(257.0));
  EXPECT_EQ(norm({}), 0.0);
}

TEST_F(ClipTest, NormIsSummedInDouble) {
  // Squares of 1e30 do not fit an f32, and 1 + 2^-30 is 1 there.
  EXPECT_NEAR(norm({{1e30f, 1e30f}}) / (std::sqrt(2.0) * static_cast<double>(1e30f)), 1.0, 1e-12);
  EXPECT_NEAR(norm({{1}, {0x1p-15f}}), std::sqrt(1 + 0x1p-30), 1e-15);
  EXPECT_GT(norm({{1}, {0x1p-15f}}), 1.0);
}

TEST_F(ClipTest, ScaleBringsTheNormToTheMaximum) {
  EXPECT_EQ(clip_factor(25, 1).scale, 0.2f);
  EXPECT_EQ(clip_factor(25, 1).norm, 5.0);
  EXPECT_EQ(clip_factor(25, 5).scale, 1.0f);
  EXPECT_EQ(clip_factor(25, 6).scale, 1.0f);
  EXPECT_EQ(clip_factor(0, 1).scale, 1.0f);
  EXPECT_EQ(clip_factor(25, 0).scale, 1.0f);  // 0: off
  EXPECT_EQ(clip_factor(25, 0).norm, 5.0);
  EXPECT_THROW(clip_factor(25, -1), CheckError);
}

TEST_F(ClipTest, NonFiniteGradientsAreSeen) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max();
  for (const NormOrder order : {NormOrder::Segments, NormOrder::None}) {
    const auto clip = [&](const std::vector<parallel::UpdateSegment>& segments) {
      return clip_factor(gradient_sum_of_squares(context, segments, nullptr, order), 1);
    };
    for (float bad : {inf, -inf, nan}) {
      for (const std::vector<float>& grads : {std::vector<float>{bad, 1, 2}, std::vector<float>{1, 2, bad}}) {
        EXPECT_FALSE(clip({segment({1}), segment(grads)}).finite);
        EXPECT_EQ(clip({segment({1}), segment(grads)}).scale, 1.0f);
      }
    }
    EXPECT_TRUE(clip({segment({largest, -largest, largest})}).finite);
  }
}

}  // namespace
}  // namespace sixfold::train
