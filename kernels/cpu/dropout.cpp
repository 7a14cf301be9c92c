// The random bits of channel c at a position of a sample are word c % 4 of the Philox block with counter
// (sample low, sample high, position, c / 4) under a key hashed from (seed, step, layer, site).
#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"
#include "runtime/core/rng.h"

namespace sixfold::kernels::cpu {

namespace {

PhiloxKey site_key(const DropoutSite& site) {
  const uint64_t of_step = philox_hash(site.seed, static_cast<uint64_t>(site.step));
  const uint64_t key = philox_hash(
      of_step, (static_cast<uint64_t>(static_cast<uint32_t>(site.layer)) << 32) | static_cast<uint32_t>(site.site));
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

/// factor[c] = 1 / (1 - probability) where channel c of the row is kept, else 0. Has room for whole blocks: the first
/// channel of the row is factor[channel_offset % 4].
void draw_factors(const DropoutSite& site, PhiloxKey key, int64_t sample, int64_t position, int64_t first_block,
                  int64_t num_blocks, float* factor) {
  const float probability = site.probability, kept = 1.0f / (1.0f - probability);
#pragma omp simd
  for (int64_t i = 0; i < num_blocks; ++i) {
    const PhiloxBlock bits = philox(key, {static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
                                          static_cast<uint32_t>(position), static_cast<uint32_t>(first_block + i)});
    for (size_t word = 0; word < 4; ++word)
      factor[static_cast<size_t>(4 * i) + word] = uniform_float(bits[word]) < probability ? 0.0f : kept;
  }
}

/// apply(begin, end, factor): elements [begin, end) are one row of [R, C].
template <typename Apply>
void for_each_row(Context& context, const DropoutSite& site, const TokenRows& rows, int64_t channels, Apply&& apply) {
  const PhiloxKey key = site_key(site);
  const int64_t first_block = rows.channel_offset / 4, skip = rows.channel_offset % 4;
  const int64_t num_blocks = (skip + channels + 3) / 4;
  parallel_for_with_scratch(context, Pieces::Short, rows.num_rows * rows.seq_len, 4 * num_blocks,
                            [&](int64_t r, float* factor) {
                              draw_factors(site, key, rows.sample_index[r / rows.seq_len],
                                           rows.seq_offset + r % rows.seq_len, first_block, num_blocks, factor);
                              apply(r * channels, (r + 1) * channels, factor + skip);
                            });
}

void check_site(const DropoutSite& site) {
  SIXFOLD_CHECK(site.probability >= 0 && site.probability < 1, "dropout probability must be in [0, 1)");
}

}  // namespace

void dropout_forward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& x,
                     const Tensor& residual, const Tensor& y) {
  check_site(site);
  const int64_t num_rows = rows.num_rows * rows.seq_len, channels = checked_dim(x, 2, 1, "dropout x");
  const float* in = checked<float>(x, {num_rows, channels}, "dropout x");
  const float* add = residual.defined() ? checked<float>(residual, {num_rows, channels}, "dropout residual") : nullptr;
  float* out = checked<float>(y, {num_rows, channels}, "dropout y");
  if (site.probability == 0) {
    parallel_ranges(context.num_threads, x.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
#pragma omp simd  // also where y is x or residual
      for (int64_t i = begin; i < end; ++i) out[i] = add ? add[i] + in[i] : in[i];
    });
    return;
  }
  for_each_row(context, site, rows, channels, [=](int64_t begin, int64_t end, const float* factor) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) out[i] = (add ? add[i] : 0.0f) + in[i] * factor[i - begin];
  });
}

void dropout_backward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& dy,
                      const Tensor& dx) {
  cpu::dropout_forward(context, site, rows, dy, Tensor(), dx);
}

}  // namespace sixfold::kernels::cpu
