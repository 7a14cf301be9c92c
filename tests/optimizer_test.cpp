// The optimizers against the update rules written out in double.
#include "runtime/train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/numbers.h"

namespace sixfold::train {
namespace {

using parallel::UpdateSegment;

// A value of a few digits that differs by i.
double pattern(int64_t i) {
  return std::sin(1.0 + 3.0 * static_cast<double>(i));
}

struct Segments {
  Memory memory;
  std::vector<UpdateSegment> list;

  // Two segments of sizes n0 (decays) and n1, whose state lies in another order than they.
  Segments(int64_t n0, int64_t n1) {
    for (const auto& [n, decay, state] : {std::tuple(n0, true, n1), std::tuple(n1, false, int64_t{0})}) {
      UpdateSegment segment;
      segment.value = Tensor::zeros({n}, DType::F32, memory, Category::Parameters);
      segment.grad = Tensor::zeros({n}, DType::F32, memory, Category::Gradients);
      segment.decay = decay;
      segment.state_offset = state;
      for (int64_t i = 0; i < n; ++i) {
        segment.value.data<float>()[i] = static_cast<float>(pattern(100 * decay + i));
      }
      list.push_back(segment);
    }
  }
  void set_grads(int step) {
    for (const UpdateSegment& segment : list) {
      for (int64_t i = 0; i < segment.grad.numel(); ++i) {
        segment.grad.data<float>()[i] = static_cast<float>(pattern(17 * step + 5 * segment.decay + i));
      }
    }
  }
};

TEST(Optimizer, AdamWFollowsItsRuleForTenSteps) {
  Segments segments(37, 70);
  kernels::Context context{segments.memory, 1};
  OptimizerOptions options;
  options.weight_decay = 0.3f;
  const auto optimizer = make_optimizer(options, 107, segments.memory);
  EXPECT_EQ(segments.memory.peak_bytes(Category::Optimizer), 2 * 107 * sizeof(float));

  struct Oracle {
    double w, m = 0, v = 0;
  };
  std::vector<std::vector<Oracle>> oracle;
  for (const UpdateSegment& segment : segments.list) {
    auto& values = oracle.emplace_back();
    for (int64_t i = 0; i < segment.value.numel(); ++i) values.push_back({segment.value.data<float>()[i]});
  }
  const double lr = 0.01, scale = 0.5;
  for (int step = 1; step <= 10; ++step) {
    segments.set_grads(step);
    optimizer->update(context, segments.list, static_cast<float>(lr), test::number(segments.memory, 0.5f));
    for (size_t s = 0; s < oracle.size(); ++s) {
      const double decay = segments.list[s].decay ? 0.3 : 0;
      for (size_t i = 0; i < oracle[s].size(); ++i) {
        Oracle& o = oracle[s][i];
        const double g = scale * segments.list[s].grad.data<float>()[i];
        o.m = 0.9 * o.m + 0.1 * g;
        o.v = 0.95 * o.v + 0.05 * g * g;
        const double m_hat = o.m / (1 - std::pow(0.9, step)), v_hat = o.v / (1 - std::pow(0.95, step));
        o.w -= lr * (m_hat / (std::sqrt(v_hat) + 1e-8) + decay * o.w);
        ASSERT_NEAR(segments.list[s].value.data<float>()[i], o.w, 2e-6) << "step " << step << " segment " << s;
      }
    }
  }
}

TEST(Optimizer, SgdFollowsItsRuleAndKeepsNothing) {
  Segments segments(5, 9);
  kernels::Context context{segments.memory, 1};
  OptimizerOptions options;
  options.kind = OptimizerKind::Sgd;
  options.weight_decay = 0.25f;
  const auto optimizer = make_optimizer(options, 14, segments.memory);
  EXPECT_EQ(segments.memory.peak_bytes(Category::Optimizer), 0u);
  segments.set_grads(1);
  std::vector<std::vector<double>> expected;
  for (const UpdateSegment& segment : segments.list) {
    auto& values = expected.emplace_back();
    for (int64_t i = 0; i < segment.value.numel(); ++i) {
      const double w = segment.value.data<float>()[i], g = segment.grad.data<float>()[i];
      values.push_back(w - 0.1 * (2.0 * g + (segment.decay ? 0.25 : 0) * w));
    }
  }
  optimizer->update(context, segments.list, 0.1f, test::number(segments.memory, 2));
  for (size_t s = 0; s < expected.size(); ++s) {
    for (size_t i = 0; i < expected[s].size(); ++i) {
      EXPECT_NEAR(segments.list[s].value.data<float>()[i], expected[s][i], 1e-6);
    }
  }
}

TEST(Optimizer, Names) {
  EXPECT_EQ(parse_optimizer("adamw"), OptimizerKind::AdamW);
  EXPECT_EQ(parse_optimizer("sgd"), OptimizerKind::Sgd);
  EXPECT_THROW(parse_optimizer("adam"), ConfigError);
  EXPECT_EQ(floats_per_element(OptimizerKind::AdamW, DType::F32), 2);
  EXPECT_EQ(floats_per_element(OptimizerKind::Sgd, DType::F32), 0);
  EXPECT_EQ(floats_per_element(OptimizerKind::AdamW, DType::BF16), 3);
  EXPECT_EQ(floats_per_element(OptimizerKind::Sgd, DType::BF16), 1);
}

}  // namespace
}  // namespace sixfold::train
