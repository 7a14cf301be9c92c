#include "tests/kernels_harness.h"

namespace sixfold {
namespace {

using namespace test;
using kernels::DropoutSite;
using kernels::TokenRows;

TEST(Philox, KnownAnswersOfRandom123) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}),
            (PhiloxBlock{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox({0xa4093822u, 0x299f31d0u}, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}),
            (PhiloxBlock{0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, UniformsAreBelowOneAndHashesDiffer) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_LT(uniform_float(0xffffffffu), 1.0f);
  EXPECT_NE(philox_hash(1, 2), philox_hash(2, 1));
  EXPECT_NE(philox_hash(1, 2), philox_hash(1, 3));
}

/// What dropout makes of a matrix of ones: 0 where dropped, 1 / (1 - probability) where kept.
Floats mask(const DropoutSite& site, const TokenRows& rows, int64_t channels) {
  const Shape shape = {rows.num_rows * rows.seq_len, channels};
  return run_kernel([&](KernelRun& run) {
    const Tensor ones = run.input(Floats(static_cast<size_t>(numel(shape)), 1.0f), shape);
    kernels::dropout_forward(run.context, site, rows, ones, Tensor(), run.output(shape));
  })[0];
}

constexpr int64_t kSamples[] = {5, (int64_t{1} << 40) + 3, 7};
constexpr DropoutSite kSite{0.25f, 1234, 17, 2, 1};

TEST(KernelsDropout, KeepsTheRightFraction) {
  for (const float p : {0.01f, 0.1f, 0.5f, 0.9f}) {
    const Floats m = mask({p, 42, 3, 1, 0}, {kSamples, 3, 100, 0, 0}, 301);
    double kept = 0;
    for (float v : m) {
      ASSERT_TRUE(v == 0.0f || v == 1.0f / (1.0f - p));
      kept += v != 0.0f;
    }
    const double n = static_cast<double>(m.size()), q = 1.0 - static_cast<double>(p);
    EXPECT_NEAR(kept / n, q, 4.5 * std::sqrt(q * (1 - q) / n)) << "p = " << p;
  }
}

TEST(KernelsDropout, MaskDoesNotDependOnSharding) {
  constexpr int64_t kSeqLen = 9, kChannels = 37;
  const Floats whole = mask(kSite, {kSamples, 3, kSeqLen, 0, 0}, kChannels);
  for (const int64_t row_split : {1, 2})
    for (const int64_t seq_split : {4, 5})
      for (const int64_t channel_split : {1, 5, 8, 36}) {
        Floats joined(whole.size(), kPoison);
        for (const auto& [b0, b1] : {std::pair{int64_t{0}, row_split}, std::pair{row_split, int64_t{3}}})
          for (const auto& [t0, t1] : {std::pair{int64_t{0}, seq_split}, std::pair{seq_split, kSeqLen}})
            for (const auto& [c0, c1] : {std::pair{int64_t{0}, channel_split}, std::pair{channel_split, kChannels}}) {
              const Floats part = mask(kSite, {kSamples + b0, b1 - b0, t1 - t0, t0, c0}, c1 - c0);
              size_t i = 0;
              for (int64_t b = b0; b < b1; ++b)
                for (int64_t t = t0; t < t1; ++t)
                  for (int64_t c = c0; c < c1; ++c)
                    joined[static_cast<size_t>((b * kSeqLen + t) * kChannels + c)] = part[i++];
            }
        EXPECT_EQ(joined, whole) << row_split << " " << seq_split << " " << channel_split;
      }
}

TEST(KernelsDropout, EverythingThatNamesAMaskChangesIt) {
  const TokenRows rows{kSamples, 3, 20, 0, 0};
  constexpr int64_t kChannels = 101;
  const Floats base = mask(kSite, rows, kChannels);
  const auto expect_independent = [&](const Floats& other, const char* what) {
    double same = 0;
    for (size_t i = 0; i < base.size(); ++i) same += base[i] == other[i];
    const double n = static_cast<double>(base.size()), expected = 0.25 * 0.25 + 0.75 * 0.75;
    EXPECT_NEAR(same / n, expected, 5 * std::sqrt(expected * (1 - expected) / n)) << what;
  };
  DropoutSite site = kSite;
  site.seed += uint64_t{1} << 32;
  expect_independent(mask(site, rows, kChannels), "seed");
  site = kSite;
  site.step += 1;
  expect_independent(mask(site, rows, kChannels), "step");
  site = kSite;
  site.layer += 1;
  expect_independent(mask(site, rows, kChannels), "layer");
  site = kSite;
  site.site += 1;
  expect_independent(mask(site, rows, kChannels), "site");
  const int64_t other_samples[] = {6, 3, (int64_t{1} << 41) + 7};
  expect_independent(mask(kSite, {other_samples, 3, 20, 0, 0}, kChannels), "sample");
  expect_independent(mask(kSite, {kSamples, 3, 20, 20, 0}, kChannels), "position");
  expect_independent(mask(kSite, {kSamples, 3, 20, 0, 1}, kChannels), "channel");
}

TEST(KernelsDropout, ForwardAddsResidualAndBackwardDrawsTheSameMask) {
  const TokenRows rows{kSamples, 2, 7, 3, 2};
  const Shape shape = {14, 33};
  const Floats m = mask(kSite, rows, 33), x = random_floats(14 * 33, 1), residual = random_floats(14 * 33, 2);
  const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
    const Tensor xt = run.input(x, shape), residual_t = run.input(residual, shape);
    kernels::dropout_forward(run.context, kSite, rows, xt, residual_t, run.output(shape));
    const Tensor over_x = run.output(x, shape), over_residual = run.output(residual, shape);
    kernels::dropout_forward(run.context, kSite, rows, over_x, residual_t, over_x);
    kernels::dropout_forward(run.context, kSite, rows, xt, over_residual, over_residual);
    kernels::dropout_backward(run.context, kSite, rows, xt, run.output(shape));
    const Tensor in_place = run.output(x, shape);
    kernels::dropout_backward(run.context, kSite, rows, in_place, in_place);
  });
  Doubles forward(x.size()), backward(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    backward[i] = static_cast<double>(x[i]) * static_cast<double>(m[i]);
    forward[i] = static_cast<double>(residual[i]) + backward[i];
  }
  expect_close(out[0], forward, 1e-6, "y");
  EXPECT_EQ(out[1], out[0]);
  EXPECT_EQ(out[2], out[0]);
  expect_close(out[3], backward, 1e-6, "dx");
  EXPECT_EQ(out[4], out[3]);
}

TEST(KernelsDropout, ZeroProbabilityIsTheIdentity) {
  const TokenRows rows{kSamples, 2, 3, 0, 0};
  const Floats x = random_floats(6 * 5, 1), residual = random_floats(6 * 5, 2);
  const DropoutSite site{0.0f, 1, 1, 0, 0};
  const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
    kernels::dropout_forward(run.context, site, rows, run.input(x, {6, 5}), Tensor(), run.output({6, 5}));
    kernels::dropout_forward(run.context, site, rows, run.input(x, {6, 5}), run.input(residual, {6, 5}),
                             run.output({6, 5}));
    kernels::dropout_backward(run.context, site, rows, run.input(x, {6, 5}), run.output({6, 5}));
  });
  EXPECT_EQ(out[0], x);
  EXPECT_EQ(out[2], x);
  Floats sum = residual;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  EXPECT_EQ(out[1], sum);
}

TEST(KernelsDropout, RefusesProbabilityOne) {
  KernelRun run(1, 0);
  const Tensor x = run.output({3, 4});
  EXPECT_THROW(kernels::dropout_forward(run.context, {1.0f, 0, 0, 0, 0}, {kSamples, 1, 3, 0, 0}, x, Tensor(), x),
               CheckError);
}

}  // namespace
}  // namespace sixfold
