#pragma once

#include "kernels/attention_shape.h"
#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

struct AttentionSizes {
  int64_t rows, seq_len, heads, head_dim;

  int64_t channels() const { return heads * head_dim; }
  Shape qkv_shape() const { return {rows * seq_len, 3 * channels()}; }
  Shape out_shape() const { return {rows * seq_len, channels()}; }
  Shape lse_shape() const { return {rows, heads, seq_len}; }
  /// Element 0 of q (part 0), k (1) or v (2) of a head at position t.
  size_t qkv(int64_t part, int64_t b, int64_t h, int64_t t) const {
    return static_cast<size_t>((b * seq_len + t) * 3 * channels() + part * channels() + h * head_dim);
  }
  size_t out(int64_t b, int64_t h, int64_t t) const {
    return static_cast<size_t>((b * seq_len + t) * channels() + h * head_dim);
  }
};

inline std::ostream& operator<<(std::ostream& out, const AttentionSizes& s) {
  return out << "B " << s.rows << " T " << s.seq_len << " H " << s.heads << " D " << s.head_dim;
}

struct AttentionValues {
  Doubles out, lse, dqkv;
};

/// All rows of the softmax, one at a time, and the chain rule through them, in double.
inline AttentionValues attention_reference(const AttentionSizes& s, const Doubles& qkv, const Doubles& dout) {
  AttentionValues result{Doubles(dout.size(), 0.0), Doubles(static_cast<size_t>(numel(s.lse_shape()))),
                         Doubles(qkv.size(), 0.0)};
  const auto num_channels = static_cast<size_t>(s.head_dim);
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  const auto dot_of = [&](const double* a, const double* b) {
    double sum = 0;
    for (size_t d = 0; d < num_channels; ++d) sum += a[d] * b[d];
    return sum;
  };
  const auto add = [&](double* to, double factor, const double* from) {
    for (size_t d = 0; d < num_channels; ++d) to[d] += factor * from[d];
  };
  Doubles p(static_cast<size_t>(s.seq_len)), dp(p.size());
  for (int64_t b = 0; b < s.rows; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t t = 0; t < s.seq_len; ++t) {
        const auto num_keys = static_cast<size_t>(t + 1);
        const auto key = [&](int64_t part, size_t u) { return s.qkv(part, b, h, static_cast<int64_t>(u)); };
        const double* q = &qkv[s.qkv(0, b, h, t)];
        const double* go = &dout[s.out(b, h, t)];
        double largest = -1e300, sum = 0, average = 0;
        for (size_t u = 0; u < num_keys; ++u) largest = std::max(largest, p[u] = scale * dot_of(q, &qkv[key(1, u)]));
        for (size_t u = 0; u < num_keys; ++u) sum += p[u] = std::exp(p[u] - largest);
        result.lse[static_cast<size_t>((b * s.heads + h) * s.seq_len + t)] = largest + std::log(sum);
        for (size_t u = 0; u < num_keys; ++u) {
          p[u] /= sum;
          dp[u] = dot_of(go, &qkv[key(2, u)]);
          average += p[u] * dp[u];
          add(&result.out[s.out(b, h, t)], p[u], &qkv[key(2, u)]);
        }
        for (size_t u = 0; u < num_keys; ++u) {
          const double ds = scale * p[u] * (dp[u] - average);
          add(&result.dqkv[key(2, u)], p[u], go);
          add(&result.dqkv[s.qkv(0, b, h, t)], ds, &qkv[key(1, u)]);
          add(&result.dqkv[key(1, u)], ds, q);
        }
      }
  return result;
}

struct AttentionOutputs {
  Floats out, lse, dqkv;
};
inline bool same_bits(const AttentionOutputs& a, const AttentionOutputs& b) {
  return same_bits(a.out, b.out) && same_bits(a.lse, b.lse) && same_bits(a.dqkv, b.dqkv);
}

/// What attention of the context's GPU makes of qkv and dout, its outputs NaN before.
inline AttentionOutputs run_attention(kernels::Context& context, const GpuVariant& variant, const AttentionSizes& s,
                                      const Floats& qkv, const Floats& dout) {
  GpuRun run(context, variant);
  const Tensor in = run.typed(qkv, s.qkv_shape()), out = run.typed_output(s.out_shape());
  const Tensor lse = run.f32_output(s.lse_shape()), dqkv = run.typed_output(s.qkv_shape());
  kernels::attention_forward(context, in, s.seq_len, s.heads, out, lse);
  kernels::attention_backward(context, run.typed(dout, s.out_shape()), in, out, lse, s.seq_len, s.heads, dqkv);
  return {run.read(out), run.read(lse), run.read(dqkv)};
}

/// The root of the sum of squares of the difference, over that of `expected` (at least 1 an element).
inline double relative_error(const Floats& actual, const Doubles& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / std::max(size, static_cast<double>(expected.size())));
}

/// In f32 every element is that of the reference. In bf16, P and dS are rounded where they are operands, out before
/// backward reads it, and each output: every one off by 2^-9 of itself at most. Sums of such terms are off by a few
/// times that of the largest term in the worst case, and by about it on average; by more where scores are large, since
/// dP and delta, whose rounding errors differ, then nearly cancel. `slack` is that of GpuRun.
inline void expect_attention(const AttentionOutputs& actual, const AttentionValues& expected, DType dtype,
                             double spread, double slack) {
  const double f32_scale = spread * spread;  // of scores, whose rounding errors become relative errors of P
  expect_close(actual.lse, expected.lse, slack * 2e-6 * spread, "lse");
  if (dtype == DType::F32) {
    expect_close(actual.out, expected.out, slack * 1e-5 * f32_scale, "out");
    expect_close(actual.dqkv, expected.dqkv, slack * 3e-5 * f32_scale, "dqkv");
  } else {
    expect_close(actual.out, expected.out, 4 * 0x1p-9 * spread, "out");
    expect_close(actual.dqkv, expected.dqkv, 8 * 0x1p-9 * spread * spread, "dqkv");
    EXPECT_LT(relative_error(actual.out, expected.out), 0x1p-9) << "out";
    EXPECT_LT(relative_error(actual.dqkv, expected.dqkv), (spread > 1 ? 4 : 1.5) * 0x1p-9) << "dqkv";
  }
}

inline void check_attention_of(kernels::Context& context, const GpuVariant& variant, const AttentionSizes& s,
                               double spread, double slack) {
  SCOPED_TRACE(testing::Message() << s << ", " << variant << ", spread " << spread);
  const GpuRun run(context, variant);
  const Floats qkv = run.rounded(random_floats(numel(s.qkv_shape()), 1, spread));
  const Floats dout = run.rounded(random_floats(numel(s.out_shape()), 2));
  const AttentionOutputs actual = run_attention(context, variant, s, qkv, dout);
  expect_attention(actual, attention_reference(s, to_doubles(qkv), to_doubles(dout)), variant.dtype, spread, slack);
}

/// Lengths on either side of those of tiles, several heads and sequences, heads that do not fill their tiles' columns
/// or are larger than any (136), addresses that no chunk of 16 bytes starts at.
inline void check_attention(kernels::Context& context, double slack = 1) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const int64_t head_dim : {32, 64, 128})
      for (const int64_t seq_len : {1, 2, 15, 16, 17, 63, 64, 65, 128, 129})
        check_attention_of(context, {dtype, 0}, {1, seq_len, 1, head_dim}, 1, slack);
    for (const int64_t head_dim : {1, 5, 16, 32, 40, 64, 80, 100, 128, 136})
      for (const int64_t shift : {0, 1}) check_attention_of(context, {dtype, shift}, {3, 35, 3, head_dim}, 1, slack);
    check_attention_of(context, {dtype, 0}, {1, 300, 1, 64}, 1, slack);
  }
}

/// Scores of some 100, where only differences may be exponents; then of 10^7, whose softmax is one key a query.
inline void check_attention_of_large_scores(kernels::Context& context, double slack = 1) {
  const AttentionSizes s{1, 130, 3, 64};
  for (const DType dtype : {DType::F32, DType::BF16}) {
    check_attention_of(context, {dtype, 0}, s, 6, slack);
    const Floats qkv = random_floats(numel(s.qkv_shape()), 3, 3e3), dout = random_floats(numel(s.out_shape()), 4);
    const AttentionOutputs actual = run_attention(context, {dtype, 0}, s, qkv, dout);
    for (const Floats* values : {&actual.out, &actual.lse, &actual.dqkv})
      for (const float v : *values) ASSERT_TRUE(std::isfinite(v));
  }
}

/// The same bits again, and from other addresses.
inline void check_attention_bits(kernels::Context& context) {
  const AttentionSizes s{3, 130, 1, 64};
  const Floats qkv = random_floats(numel(s.qkv_shape()), 5), dout = random_floats(numel(s.out_shape()), 6);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const AttentionOutputs first = run_attention(context, {dtype, 0}, s, qkv, dout);
    EXPECT_TRUE(same_bits(first, run_attention(context, {dtype, 0}, s, qkv, dout)));
    EXPECT_TRUE(same_bits(first, run_attention(context, {dtype, 1}, s, qkv, dout)));
  }
}

/// What stands at a position changes no bit of any output before it.
inline void check_attention_is_causal(kernels::Context& context) {
  const AttentionSizes s{1, 140, 1, 32};
  const Floats qkv = random_floats(numel(s.qkv_shape()), 7), dout = random_floats(numel(s.out_shape()), 8);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Floats before = run_attention(context, {dtype, 0}, s, qkv, dout).out;
    for (const int64_t position : {31, 63, 64, 128, 139}) {
      Floats changed = qkv;
      for (int64_t part = 0; part < 3; ++part)
        for (size_t d = 0; d < 32; ++d) changed[s.qkv(part, 0, 0, position) + d] = 100.0f;
      const Floats after = run_attention(context, {dtype, 0}, s, changed, dout).out;
      const auto end = static_cast<std::ptrdiff_t>(s.out(0, 0, position));
      EXPECT_TRUE(std::equal(before.begin(), before.begin() + end, after.begin())) << position;
      EXPECT_FALSE(std::equal(before.begin() + end, before.end(), after.begin() + end)) << position;
    }
  }
}

}  // namespace sixfold::test
