#include "tests/kernels_harness.h"

namespace sixfold {
namespace {

using namespace test;

/// Loss and gradient of a whole vocabulary of `vocab` symbols in rows of `columns` >= vocab.
struct Outcome {
  double loss = 0;
  Floats gradient;
};
Outcome run_cross_entropy(const Floats& logits, const std::vector<int32_t>& targets, int64_t columns, int64_t vocab,
                          float scale) {
  Outcome outcome;
  const int64_t rows = static_cast<int64_t>(targets.size());
  const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
    const Tensor x = run.output(logits, {rows, columns}), ids = run.input(targets, {rows});
    const Tensor row_max = run.output({rows}), stats = run.output({rows, 2});
    kernels::cross_entropy_statistics(run.context, x, ids, 0, vocab, row_max, stats);
    const Tensor loss = run.output({1});
    kernels::cross_entropy_loss(run.context, ids, row_max, stats, loss);
    outcome.loss = loss.data<float>()[0];
    kernels::cross_entropy_backward(run.context, ids, 0, vocab, row_max, stats, run.input(Floats{scale}, {1}), x);
  });
  outcome.gradient = out[0];
  return outcome;
}

double reference_loss(const Doubles& logits, const std::vector<int32_t>& targets, size_t columns, size_t vocab) {
  double loss = 0;
  for (size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] < 0) continue;
    const double* row = logits.data() + r * columns;
    double largest = row[0], sum = 0;
    for (size_t c = 0; c < vocab; ++c) largest = std::max(largest, row[c]);
    for (size_t c = 0; c < vocab; ++c) sum += std::exp(row[c] - largest);
    loss += std::log(sum) + largest - row[targets[r]];
  }
  return loss;
}

TEST(KernelsCrossEntropy, ElevenZeroLogitsCostLogElevenAndPaddingNothing) {
  constexpr int64_t kColumns = 16, kVocab = 11;
  Floats logits(3 * kColumns, 0.0f);
  for (size_t i = 0; i < logits.size(); ++i)
    if (i % kColumns >= kVocab) logits[i] = 50.0f;  // what padding holds must not matter
  const Outcome out = run_cross_entropy(logits, {0, 10, 4}, kColumns, kVocab, 1.0f);
  EXPECT_NEAR(out.loss, 3 * std::log(11.0), 1e-6);
  const int64_t target[] = {0, 10, 4};
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t c = 0; c < kColumns; ++c) {
      const float g = out.gradient[static_cast<size_t>(r * kColumns + c)];
      if (c >= kVocab) {
        EXPECT_EQ(g, 0.0f);
      } else {
        EXPECT_NEAR(g, 1.0 / 11 - (c == target[r] ? 1.0 : 0.0), 1e-6);
      }
    }
}

TEST(KernelsCrossEntropy, EqualsReferenceAndNumericGradient) {
  for (const size_t rows : {size_t{1}, size_t{7}, size_t{65}})
    for (const size_t vocab : {size_t{1}, size_t{5}, size_t{33}, size_t{384}}) {
      const size_t columns = vocab + 3;
      SCOPED_TRACE(testing::Message() << rows << "x" << vocab);
      const Floats logits = random_floats(static_cast<int64_t>(rows * columns), 1, 5.0);
      std::vector<int32_t> targets;
      for (size_t r = 0; r < rows; ++r) targets.push_back(r % 5 == 3 ? -1 : static_cast<int32_t>(r * 7 % vocab));
      const Outcome out =
          run_cross_entropy(logits, targets, static_cast<int64_t>(columns), static_cast<int64_t>(vocab), 0.5f);
      const double expected = reference_loss(to_doubles(logits), targets, columns, vocab);
      EXPECT_NEAR(out.loss, expected, 1e-6 * (1 + expected));
      expect_gradient([&](const Doubles& v) { return 0.5 * reference_loss(v, targets, columns, vocab); }, logits,
                      out.gradient, 1e-6, "dlogits");
      for (size_t i = 0; i < out.gradient.size(); ++i) {
        const bool masked = targets[i / columns] < 0 || i % columns >= vocab;
        ASSERT_TRUE(!masked || out.gradient[i] == 0.0f) << i;
      }
    }
}

TEST(KernelsCrossEntropy, HugeLogitsDoNotOverflow) {
  const Outcome out = run_cross_entropy({1e30f, -1e30f, 0.0f, 3000.0f, 2999.0f, -3000.0f}, {0, 1}, 3, 3, 1.0f);
  EXPECT_NEAR(out.loss, std::log1p(std::exp(1.0)), 1e-6);
  EXPECT_NEAR(out.gradient[0], 0.0, 1e-7);
}

// A group of `starts.size()` ranks, each with columns [starts[k], starts[k] + 8) of a vocabulary of 11.
void expect_split_equals_whole(const std::vector<int64_t>& starts) {
  constexpr int64_t kRows = 6, kVocab = 11, kPart = 8;
  const int64_t columns = kPart * static_cast<int64_t>(starts.size());
  const Floats logits = random_floats(kRows * columns, 2, 4.0);
  const std::vector<int32_t> targets = {0, 7, 8, 10, -100, 3};
  const Outcome whole = run_cross_entropy(logits, targets, columns, kVocab, 2.0f);

  KernelRun run(2, 0);
  const Tensor ids = run.input(targets, {kRows});
  const Floats lowest(kRows, -std::numeric_limits<float>::infinity());
  const Tensor row_max = run.input(lowest, {kRows}), stats = run.input(Floats(2 * kRows, 0.0f), {kRows, 2});
  std::vector<Tensor> parts, own_max, own_stats;
  for (const int64_t start : starts) {
    Floats part;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kPart; ++c) part.push_back(logits[static_cast<size_t>(r * columns + start + c)]);
    parts.push_back(run.input(part, {kRows, kPart}));
    own_max.push_back(run.output({kRows}));
    own_stats.push_back(run.output({kRows, 2}));
    kernels::cross_entropy_statistics(run.context, parts.back(), ids, start, kVocab, own_max.back(), own_stats.back());
    for (int64_t r = 0; r < kRows; ++r)  // AllReduce(max)
      row_max.data<float>()[r] = std::max(row_max.data<float>()[r], own_max.back().data<float>()[r]);
  }
  for (size_t k = 0; k < starts.size(); ++k) {
    kernels::cross_entropy_rescale(run.context, own_max[k], row_max, own_stats[k]);
    kernels::accumulate(run.context, own_stats[k], stats);  // AllReduce(sum)
  }
  const Tensor loss = run.output({1});
  kernels::cross_entropy_loss(run.context, ids, row_max, stats, loss);
  EXPECT_NEAR(loss.data<float>()[0], whole.loss, 1e-5);
  for (size_t k = 0; k < starts.size(); ++k) {
    kernels::cross_entropy_backward(run.context, ids, starts[k], kVocab, row_max, stats, run.input(Floats{2.0f}, {1}),
                                    parts[k]);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kPart; ++c)
        ASSERT_NEAR(parts[k].data<float>()[r * kPart + c],
                    whole.gradient[static_cast<size_t>(r * columns + starts[k] + c)], 1e-6);
  }
}

TEST(KernelsCrossEntropy, SplitOverTheVocabularyEqualsWhole) {
  expect_split_equals_whole({0, 8});
  expect_split_equals_whole({0, 8, 16});  // the last rank holds padding only
}

TEST(KernelsCrossEntropy, RefusesTargetsOutsideTheVocabulary) {
  KernelRun run(1, 0);
  const Tensor ids = run.input(std::vector<int32_t>{5}, {1});
  EXPECT_THROW(kernels::cross_entropy_statistics(run.context, run.output({1, 8}), ids, 0, 5, run.output({1}),
                                                 run.output({1, 2})),
               CheckError);
}

}  // namespace
}  // namespace sixfold
