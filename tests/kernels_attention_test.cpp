// Streaming attention against the whole T x T softmax matrix in double.
#include "tests/kernels_harness.h"

namespace sixfold {
namespace {

using namespace test;

struct Sizes {
  size_t rows, seq_len, heads, head_dim;

  size_t channels() const { return heads * head_dim; }
  Shape qkv_shape() const { return {static_cast<int64_t>(rows * seq_len), static_cast<int64_t>(3 * channels())}; }
  Shape out_shape() const { return {static_cast<int64_t>(rows * seq_len), static_cast<int64_t>(channels())}; }
  Shape lse_shape() const {
    return {static_cast<int64_t>(rows), static_cast<int64_t>(heads), static_cast<int64_t>(seq_len)};
  }
  /// Element d of q (part 0), k (1) or v (2).
  size_t qkv(size_t part, size_t b, size_t t, size_t h, size_t d) const {
    return (b * seq_len + t) * 3 * channels() + part * channels() + h * head_dim + d;
  }
  size_t out(size_t b, size_t t, size_t h, size_t d) const { return (b * seq_len + t) * channels() + h * head_dim + d; }
};
constexpr Sizes kSizes[] = {{1, 1, 1, 1},  {2, 2, 3, 5},   {1, 7, 1, 33},   {1, 63, 2, 8}, {2, 64, 1, 16},
                            {1, 65, 3, 7}, {2, 100, 1, 9}, {1, 130, 2, 64}, {1, 193, 1, 3}};

struct Forward {
  Doubles out, lse, probabilities;  // probabilities [B, H, T, T]
};
Forward reference_forward(const Sizes& s, const Doubles& qkv) {
  const size_t n = s.seq_len;
  Forward f{Doubles(s.rows * n * s.channels(), 0.0), Doubles(s.rows * s.heads * n),
            Doubles(s.rows * s.heads * n * n, 0.0)};
  for (size_t b = 0; b < s.rows; ++b)
    for (size_t h = 0; h < s.heads; ++h)
      for (size_t t = 0; t < n; ++t) {
        double* p = f.probabilities.data() + ((b * s.heads + h) * n + t) * n;
        double largest = -1e300, sum = 0;
        for (size_t u = 0; u <= t; ++u) {
          for (size_t d = 0; d < s.head_dim; ++d) p[u] += qkv[s.qkv(0, b, t, h, d)] * qkv[s.qkv(1, b, u, h, d)];
          p[u] /= std::sqrt(static_cast<double>(s.head_dim));
          largest = std::max(largest, p[u]);
        }
        for (size_t u = 0; u <= t; ++u) sum += p[u] = std::exp(p[u] - largest);
        for (size_t u = 0; u <= t; ++u) {
          p[u] /= sum;
          for (size_t d = 0; d < s.head_dim; ++d) f.out[s.out(b, t, h, d)] += p[u] * qkv[s.qkv(2, b, u, h, d)];
        }
        f.lse[(b * s.heads + h) * n + t] = largest + std::log(sum);
      }
  return f;
}

/// The chain rule through out = P V, the softmax and the scores, with all of P at hand.
Doubles reference_backward(const Sizes& s, const Doubles& qkv, const Doubles& dout) {
  const Forward f = reference_forward(s, qkv);
  const size_t n = s.seq_len;
  Doubles gradient(qkv.size(), 0.0);
  for (size_t b = 0; b < s.rows; ++b)
    for (size_t h = 0; h < s.heads; ++h)
      for (size_t t = 0; t < n; ++t) {
        const double* p = f.probabilities.data() + ((b * s.heads + h) * n + t) * n;
        Doubles dp(n, 0.0);
        double average = 0;
        for (size_t u = 0; u <= t; ++u) {
          for (size_t d = 0; d < s.head_dim; ++d) {
            dp[u] += dout[s.out(b, t, h, d)] * qkv[s.qkv(2, b, u, h, d)];
            gradient[s.qkv(2, b, u, h, d)] += p[u] * dout[s.out(b, t, h, d)];
          }
          average += p[u] * dp[u];
        }
        for (size_t u = 0; u <= t; ++u) {
          const double dscore = p[u] * (dp[u] - average) / std::sqrt(static_cast<double>(s.head_dim));
          for (size_t d = 0; d < s.head_dim; ++d) {
            gradient[s.qkv(0, b, t, h, d)] += dscore * qkv[s.qkv(1, b, u, h, d)];
            gradient[s.qkv(1, b, u, h, d)] += dscore * qkv[s.qkv(0, b, t, h, d)];
          }
        }
      }
  return gradient;
}

/// Outputs: out, lse, dqkv.
std::vector<Floats> run_attention(const Sizes& s, const Floats& qkv, const Floats& dout) {
  return run_kernel([&](KernelRun& run) {
    const int64_t seq_len = static_cast<int64_t>(s.seq_len), heads = static_cast<int64_t>(s.heads);
    const Tensor in = run.input(qkv, s.qkv_shape()), out = run.output(s.out_shape()), lse = run.output(s.lse_shape());
    kernels::attention_forward(run.context, in, seq_len, heads, out, lse);
    kernels::attention_backward(run.context, run.input(dout, s.out_shape()), in, out, lse, seq_len, heads,
                                run.output(s.qkv_shape()));
  });
}

TEST(KernelsAttention, EqualsReference) {
  for (const Sizes& s : kSizes)
    for (const double spread : {1.0, 6.0}) {  // the second: scores of some 100, where only differences may be exponents
      SCOPED_TRACE(testing::Message() << "B " << s.rows << " T " << s.seq_len << " H " << s.heads << " D " << s.head_dim
                                      << " spread " << spread);
      const Floats qkv = random_floats(numel(s.qkv_shape()), 1, spread), dout = random_floats(numel(s.out_shape()), 2);
      const std::vector<Floats> actual = run_attention(s, qkv, dout);
      const Forward expected = reference_forward(s, to_doubles(qkv));
      expect_close(actual[0], expected.out, 1e-5 * spread * spread, "out");
      expect_close(actual[1], expected.lse, 2e-6 * spread, "lse");
      expect_close(actual[2], reference_backward(s, to_doubles(qkv), to_doubles(dout)), 3e-5 * spread * spread, "dqkv");
    }
}

TEST(KernelsAttention, BackwardEqualsNumericGradient) {
  for (const Sizes& s : {Sizes{1, 1, 1, 1}, Sizes{2, 7, 2, 5}, Sizes{1, 66, 1, 3}}) {
    SCOPED_TRACE(testing::Message() << "T " << s.seq_len);
    const Floats qkv = random_floats(numel(s.qkv_shape()), 3), dout = random_floats(numel(s.out_shape()), 4);
    const Doubles weights = to_doubles(dout);
    expect_gradient([&](const Doubles& v) { return dot(weights, reference_forward(s, v).out); }, qkv,
                    run_attention(s, qkv, dout)[2], 1e-5, "dqkv");
  }
}

TEST(KernelsAttention, NoQuerySeesALaterKey) {
  const Sizes s{1, 130, 1, 8};
  const Floats qkv = random_floats(numel(s.qkv_shape()), 5), dout = random_floats(numel(s.out_shape()), 6);
  const Floats before = run_attention(s, qkv, dout)[0];
  for (const size_t position : {size_t{63}, size_t{64}, size_t{129}}) {
    Floats changed = qkv;
    for (size_t part = 0; part < 3; ++part)
      for (size_t d = 0; d < 8; ++d) changed[s.qkv(part, 0, position, 0, d)] = 100.0f;
    const Floats after = run_attention(s, changed, dout)[0];
    const auto end = static_cast<std::ptrdiff_t>(position * 8);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + end, after.begin()));
    EXPECT_FALSE(std::equal(before.begin() + end, before.end(), after.begin() + end));
  }
}

TEST(KernelsAttention, TemporariesDoNotGrowWithTheSquareOfTheLength) {
  constexpr int64_t kSeqLen = 1500;
  KernelRun run(1, 0);
  const Tensor qkv = run.input(random_floats(kSeqLen * 12, 1), {kSeqLen, 12}), out = run.output({kSeqLen, 4});
  const Tensor lse = run.output({1, 1, kSeqLen});
  kernels::attention_forward(run.context, qkv, kSeqLen, 1, out, lse);
  kernels::attention_backward(run.context, out, qkv, out, lse, kSeqLen, 1, run.output({kSeqLen, 12}));
  EXPECT_LT(run.context.memory.peak_bytes(Category::Activations), size_t{kSeqLen * kSeqLen * 4 / 20});
}

TEST(KernelsAttention, RefusesPartsOfSequencesAndHeads) {
  KernelRun run(1, 0);
  const Tensor qkv = run.output({6, 12}), out = run.output({6, 4}), lse = run.output({2, 1, 3});
  EXPECT_THROW(kernels::attention_forward(run.context, qkv, 4, 1, out, lse), CheckError);
  EXPECT_THROW(kernels::attention_forward(run.context, qkv, 3, 3, out, lse), CheckError);
  EXPECT_THROW(kernels::attention_forward(run.context, qkv, 3, 2, out, lse), CheckError);  // lse [B, H, T]
}

}  // namespace
}  // namespace sixfold
