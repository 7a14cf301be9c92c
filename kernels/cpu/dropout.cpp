#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dropout_mask.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cpu {

namespace {

/// apply(begin, end, factor): elements [begin, end) are one row of [R, C].
template <typename Apply>
void for_each_row(Context& context, const DropoutMask& mask, const TokenRows& rows, int64_t channels, Apply&& apply) {
  const int64_t first_block = rows.channel_offset / 4, skip = rows.channel_offset % 4;
  // A row of factors has room for whole blocks: its first channel is factor[skip].
  const int64_t num_factors = dropout_scratch(skip + channels), num_blocks = num_factors / 4;
  parallel_for_with_scratch(context, Pieces::Short, rows.num_rows * rows.seq_len, num_factors,
                            [&](int64_t r, float* factor) {
                              const int64_t sample = rows.sample_index[r / rows.seq_len];
                              const int64_t position = rows.seq_offset + r % rows.seq_len;
#pragma omp simd
                              for (int64_t i = 0; i < num_blocks; ++i)
                                mask.draw(sample, position, first_block + i, factor + 4 * i);
                              apply(r * channels, (r + 1) * channels, factor + skip);
                            });
}

}  // namespace

void dropout_forward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& x,
                     const Tensor& residual, const Tensor& y) {
  const DropoutMask mask(site);
  const int64_t num_rows = rows.num_rows * rows.seq_len, channels = checked_dim(x, 2, 1, "dropout x");
  const float* in = checked<float>(x, {num_rows, channels}, "dropout x");
  const float* add = residual.defined() ? checked<float>(residual, {num_rows, channels}, "dropout residual") : nullptr;
  float* out = checked<float>(y, {num_rows, channels}, "dropout y");
  if (mask.probability == 0) {
    parallel_ranges(context.num_threads, x.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
#pragma omp simd  // also where y is x or residual
      for (int64_t i = begin; i < end; ++i) out[i] = add ? add[i] + in[i] : in[i];
    });
    return;
  }
  for_each_row(context, mask, rows, channels, [=](int64_t begin, int64_t end, const float* factor) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) out[i] = (add ? add[i] : 0.0f) + in[i] * factor[i - begin];
  });
}

void dropout_backward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& dy,
                      const Tensor& dx) {
  cpu::dropout_forward(context, site, rows, dy, Tensor(), dx);
}

}  // namespace sixfold::kernels::cpu
