#pragma once

#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// Logits of a whole vocabulary, `columns` a row, of which ranks have their own; and what they lead to, in double.
struct CrossEntropyCase {
  size_t rows, vocab, columns;
  float scale;
  Floats logits;
  std::vector<int32_t> targets;
  Doubles row_max, sums, gradient;
  double loss = 0;

  /// Padding columns hold large numbers, which must not matter; every fifth row is masked.
  CrossEntropyCase(const GpuRun& run, size_t rows_, size_t vocab_, size_t columns_, float scale_)
      : rows(rows_),
        vocab(vocab_),
        columns(columns_),
        scale(scale_),
        logits(run.rounded(random_floats(static_cast<int64_t>(rows_ * columns_), 1, 5.0))),
        row_max(rows_),
        sums(rows_),
        gradient(rows_ * columns_) {
    for (size_t i = 0; i < logits.size(); ++i)
      if (i % columns >= vocab) logits[i] = 64.0f;
    for (size_t r = 0; r < rows; ++r) targets.push_back(r % 5 == 3 ? -1 : static_cast<int32_t>((r * 7 + 2) % vocab));
    for (size_t r = 0; r < rows; ++r) add_row(r);
  }

 private:
  void add_row(size_t r) {
    const Doubles row = to_doubles({logits.data() + r * columns, logits.data() + r * columns + vocab});
    row_max[r] = *std::max_element(row.begin(), row.end());
    for (const double x : row) sums[r] += std::exp(x - row_max[r]);
    if (targets[r] < 0) return;
    const auto target = static_cast<size_t>(targets[r]);
    loss += std::log(sums[r]) + row_max[r] - row[target];
    for (size_t c = 0; c < vocab; ++c) {
      const double probability = std::exp(row[c] - row_max[r]) / sums[r];
      gradient[r * columns + c] = static_cast<double>(scale) * (probability - (c == target ? 1.0 : 0.0));
    }
  }
};

inline double logit_of_target(const CrossEntropyCase& c, size_t r) {
  return static_cast<double>(c.logits[r * c.columns + static_cast<size_t>(c.targets[r])]);
}

/// Of one rank: every result equals the reference, masked rows and padding columns have a gradient of exactly 0.
inline void check_cross_entropy(kernels::Context& context, double slack = 1) {
  struct Sizes {
    size_t rows, vocab, columns;
  };
  for (const GpuVariant variant : kGpuVariants) {
    // One symbol; no padding; padding within a pack, and more than a block's worth of whole packs before it.
    for (const Sizes s : {Sizes{1, 1, 1}, Sizes{7, 5, 8}, Sizes{33, 129, 136}, Sizes{3, 33, 33}, Sizes{300, 64, 64},
                          Sizes{4, 3005, 3072}}) {
      SCOPED_TRACE(testing::Message() << s.rows << "x" << s.vocab << " of " << s.columns << ", " << variant);
      GpuRun run(context, variant, slack);
      const CrossEntropyCase c(run, s.rows, s.vocab, s.columns, 0.5f);
      const auto rows = static_cast<int64_t>(s.rows), columns = static_cast<int64_t>(s.columns),
                 vocab = static_cast<int64_t>(s.vocab);
      const Tensor logits = run.typed(c.logits, {rows, columns}), targets = run.ints(c.targets, {rows});
      const Tensor row_max = run.f32_output({rows}), stats = run.f32_output({rows, 2}), loss = run.f32_output({1});
      kernels::cross_entropy_statistics(context, logits, targets, 0, vocab, row_max, stats);
      kernels::cross_entropy_loss(context, targets, row_max, stats, loss);
      expect_close(run.read(row_max), c.row_max, 0, "row_max");
      Doubles expected;
      for (size_t r = 0; r < s.rows; ++r) {
        expected.push_back(c.sums[r]);
        expected.push_back(c.targets[r] < 0 ? 0.0 : logit_of_target(c, r));
      }
      expect_close(run.read(stats), expected, run.f32_tolerance(1e-5), "stats");
      expect_close(run.read(loss), {c.loss}, run.f32_tolerance(1e-5), "loss");
      kernels::cross_entropy_backward(context, targets, 0, vocab, row_max, stats, run.f32({c.scale}, {1}), logits);
      const Floats gradient = run.read(logits);
      expect_close(gradient, c.gradient, run.tolerance(1e-5), "dlogits");
      for (size_t i = 0; i < gradient.size(); ++i) {
        const bool is_zero = c.targets[i / c.columns] < 0 || i % c.columns >= c.vocab;
        ASSERT_TRUE(!is_zero || gradient[i] == 0.0f) << i;
      }
    }
  }
}

/// Of a group whose ranks have 8 columns each of a vocabulary of 11, reduced here in the group's place: the last has
/// only padding, and where `far`, the logits of the first are so much smaller that nothing is left of their sum.
inline void check_cross_entropy_of_group(kernels::Context& context, bool far, double slack = 1) {
  constexpr int64_t kRows = 6, kVocab = 11, kPart = 8;
  constexpr size_t kRanks = 3;
  for (const GpuVariant variant : kGpuVariants) {
    SCOPED_TRACE(testing::Message() << variant << ", " << far);
    GpuRun run(context, variant, slack);
    CrossEntropyCase c(run, kRows, kVocab, kPart * kRanks, 2.0f);
    for (size_t i = 0; i < c.logits.size(); ++i) c.logits[i] -= far && i % c.columns < kPart ? 512.0f : 0.0f;
    c.logits = run.rounded(c.logits);
    const Tensor targets = run.ints(c.targets, {kRows});
    std::vector<Tensor> parts, own_max, own_stats;
    Floats highest(kRows, -INFINITY), total(2 * kRows, 0.0f);
    for (size_t k = 0; k < kRanks; ++k) {
      Floats part;
      for (size_t i = 0; i < c.logits.size(); ++i)
        if (i % c.columns / kPart == k) part.push_back(c.logits[i]);
      parts.push_back(run.typed(part, {kRows, kPart}));
      own_max.push_back(run.f32_output({kRows}));
      own_stats.push_back(run.f32_output({kRows, 2}));
      kernels::cross_entropy_statistics(context, parts[k], targets, static_cast<int64_t>(k) * kPart, kVocab, own_max[k],
                                        own_stats[k]);
      const Floats values = run.read(own_max[k]);
      for (size_t r = 0; r < kRows; ++r) highest[r] = std::max(highest[r], values[r]);
    }
    const Tensor row_max = run.f32(highest, {kRows});
    for (size_t k = 0; k < kRanks; ++k) {
      kernels::cross_entropy_rescale(context, own_max[k], row_max, own_stats[k]);
      const Floats values = run.read(own_stats[k]);
      for (size_t i = 0; i < total.size(); ++i) total[i] += values[i];
    }
    EXPECT_EQ(run.read(own_stats[kRanks - 1]), Floats(2 * kRows, 0.0f));
    for (size_t r = 0; r < kRows; ++r) {
      double sum = 0;
      for (size_t i = 0; i < kVocab; ++i)
        sum += std::exp(static_cast<double>(c.logits[r * c.columns + i]) - static_cast<double>(highest[r]));
      EXPECT_NEAR(total[2 * r], sum, run.f32_tolerance(1e-5) * sum);
      EXPECT_NEAR(total[2 * r + 1], c.targets[r] < 0 ? 0.0 : logit_of_target(c, r), 1e-6);
    }
    if (far) continue;
    const Tensor stats = run.f32(total, {kRows, 2}), loss = run.f32_output({1});
    kernels::cross_entropy_loss(context, targets, row_max, stats, loss);
    expect_close(run.read(loss), {c.loss}, run.f32_tolerance(1e-5), "loss");
    for (size_t k = 0; k < kRanks; ++k) {
      kernels::cross_entropy_backward(context, targets, static_cast<int64_t>(k) * kPart, kVocab, row_max, stats,
                                      run.f32({c.scale}, {1}), parts[k]);
      Doubles expected;
      for (size_t i = 0; i < c.gradient.size(); ++i)
        if (i % c.columns / kPart == k) expected.push_back(c.gradient[i]);
      expect_close(run.read(parts[k]), expected, run.tolerance(1e-5), "dlogits");
    }
  }
}

/// Logits that exp cannot take, and a row of -inf on a rank of a group whose maximum is 0: no NaN, no infinity.
inline void check_cross_entropy_of_extremes(kernels::Context& context) {
  GpuRun run(context, {DType::F32, 0});
  const Tensor targets = run.ints({0, 1, 2}, {3});
  const Tensor logits = run.f32({1e30f, -1e30f, 0, 3000, 2999, -3000, -INFINITY, -INFINITY, -INFINITY}, {3, 3});
  const Tensor row_max = run.f32_output({3}), stats = run.f32_output({3, 2});
  kernels::cross_entropy_statistics(context, logits, targets, 0, 3, row_max, stats);
  EXPECT_EQ(run.read(row_max), (Floats{1e30f, 3000, -INFINITY}));
  kernels::cross_entropy_rescale(context, row_max, run.f32({1e30f, 3000, 0}, {3}), stats);
  expect_close(run.read(stats.slice(0, {5})), {1, 1e30, 1 + std::exp(-1.0), 2999, 0}, 1e-6, "stats");
}

}  // namespace sixfold::test
