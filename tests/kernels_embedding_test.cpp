#include "tests/kernels_harness.h"

namespace sixfold {
namespace {

using namespace test;
using kernels::TokenRows;

constexpr int64_t kVocab = 11;

std::vector<int32_t> some_tokens(int64_t n) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>((i * i + 3 * i) % kVocab));  // with repeats
  return tokens;
}

TEST(KernelsTokenEmbedding, ForwardPicksRowsAndHalvesAddUp) {
  for (const int64_t rows : {1, 3, 7, 100})
    for (const int64_t channels : {1, 5, 33, 384}) {
      const std::vector<int32_t> tokens = some_tokens(rows);
      const Floats weight = random_floats(kVocab * channels, 1);
      const Floats low(weight.begin(), weight.begin() + 6 * channels),
          high(weight.begin() + 6 * channels, weight.end());
      const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
        const Tensor ids = run.input(tokens, {rows});
        const Shape y = {rows, channels};
        kernels::token_embedding_forward(run.context, ids, run.input(weight, {kVocab, channels}), 0, run.output(y));
        kernels::token_embedding_forward(run.context, ids, run.input(low, {6, channels}), 0, run.output(y));
        kernels::token_embedding_forward(run.context, ids, run.input(high, {5, channels}), 6, run.output(y));
      });
      for (size_t i = 0; i < out[0].size(); ++i) {
        const size_t r = i / static_cast<size_t>(channels), c = i % static_cast<size_t>(channels);
        const float expected = weight[static_cast<size_t>(tokens[r] * channels) + c];
        ASSERT_EQ(out[0][i], expected);
        ASSERT_EQ(out[1][i], tokens[r] < 6 ? expected : 0.0f);
        ASSERT_EQ(out[2][i], tokens[r] < 6 ? 0.0f : expected);
      }
    }
}

TEST(KernelsTokenEmbedding, BackwardAddsEveryRowOfAToken) {
  for (const int64_t rows : {1, 3, 7, 100})
    for (const int64_t channels : {1, 5, 33, 384}) {
      const std::vector<int32_t> tokens = some_tokens(rows);
      const Floats dy = random_floats(rows * channels, 1), start = random_floats(kVocab * channels, 2);
      const Floats start_high(start.begin() + 6 * channels, start.end());
      const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
        const Tensor ids = run.input(tokens, {rows}), gradient = run.input(dy, {rows, channels});
        kernels::token_embedding_backward(run.context, ids, gradient, 0, run.output(start, {kVocab, channels}));
        kernels::token_embedding_backward(run.context, ids, gradient, 6, run.output(start_high, {5, channels}));
      });
      Doubles expected = to_doubles(start);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < channels; ++c)
          expected[static_cast<size_t>(tokens[static_cast<size_t>(r)] * channels + c)] +=
              dy[static_cast<size_t>(r * channels + c)];
      expect_close(out[0], expected, 1e-5, "dweight");
      EXPECT_EQ(out[1], Floats(out[0].begin() + 6 * channels, out[0].end()));
    }
}

TEST(KernelsPositionEmbedding, ForwardAndBackwardUseTheOffset) {
  const int64_t samples[] = {0, 0, 0};
  for (const int64_t seq_len : {1, 7, 65})
    for (const int64_t channels : {1, 33, 384}) {
      const TokenRows rows{samples, 3, seq_len, 2, 0};
      const int64_t num_positions = seq_len + 4, num_rows = 3 * seq_len;
      const Floats weight = random_floats(num_positions * channels, 1), x = random_floats(num_rows * channels, 2);
      const Floats start = random_floats(num_positions * channels, 3);
      const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
        kernels::position_embedding_forward(run.context, rows, run.input(weight, {num_positions, channels}),
                                            run.output(x, {num_rows, channels}));
        kernels::position_embedding_backward(run.context, rows, run.input(x, {num_rows, channels}),
                                             run.output(start, {num_positions, channels}));
      });
      Doubles y = to_doubles(x), dweight = to_doubles(start);
      for (int64_t b = 0; b < 3; ++b)
        for (int64_t t = 0; t < seq_len; ++t)
          for (int64_t c = 0; c < channels; ++c) {
            const size_t row = static_cast<size_t>((b * seq_len + t) * channels + c);
            const size_t position = static_cast<size_t>((2 + t) * channels + c);
            y[row] += static_cast<double>(weight[position]);
            dweight[position] += static_cast<double>(x[row]);
          }
      expect_close(out[0], y, 1e-6, "y");
      expect_close(out[1], dweight, 1e-6, "dweight");
    }
}

TEST(KernelsPositionEmbedding, RefusesPositionsBeyondTheTable) {
  const int64_t samples[] = {0};
  KernelRun run(1, 0);
  EXPECT_THROW(
      kernels::position_embedding_forward(run.context, {samples, 1, 4, 5, 0}, run.output({8, 2}), run.output({4, 2})),
      CheckError);
}

}  // namespace
}  // namespace sixfold
