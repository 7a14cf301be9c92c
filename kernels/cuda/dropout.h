// The part of dropout that other kernels do as the first of several things with a row.
#pragma once

#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/dropout_mask.h"

namespace sixfold::kernels::cuda {

/// A row of [R, C]: each lane takes the channels of one Philox block at a time, which are `n` neighbours in memory, or
/// where n is 1, those of the block that the row has.
template <typename T, int n>
struct Dropout {
  DropoutMask mask;
  TokenRows rows;
  int64_t channels;
  const T* x;
  const T* residual;  // nullptr: none
  T* y;

  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    const int64_t skip = rows.channel_offset % 4, first_block = rows.channel_offset / 4;
    const bool draws = mask.probability > 0;
    const int64_t sample = draws ? rows.sample_index[row / rows.seq_len] : 0;
    const int64_t position = rows.seq_offset + row % rows.seq_len;
    for_channels<4>(lanes, skip + channels, [&](int64_t i) {
      float factor[4] = {1, 1, 1, 1};
      if (draws) mask.draw(sample, position, first_block + i / 4, factor);
      SIXFOLD_UNROLL
      for (int k = 0; k < 4; k += n) {
        const int64_t c = i + k - skip;
        if (n == 4 || (c >= 0 && c < channels)) apply(row * channels + c, factor + k);
      }
    });
  }

 private:
  SIXFOLD_DEVICE void apply(int64_t i, const float* factor) const {
    float values[n], sum[n] = {};
    load(x + i, values);
    if (residual != nullptr) load(residual + i, sum);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) sum[k] += values[k] * factor[k];
    store(y + i, sum);
  }
};

/// `n` must be 1 where a row does not start with a Philox block.
template <typename T, int n>
Dropout<T, n> dropout_rows(const DropoutMask& mask, const TokenRows& rows, const Tensor& x, const Tensor& residual,
                           const Tensor& y) {
  const int64_t num_rows = rows.num_rows * rows.seq_len, channels = checked_dim(x, 2, 1, "dropout x");
  return {mask,
          rows,
          channels,
          checked<T>(x, {num_rows, channels}, "dropout x"),
          residual.defined() ? checked<T>(residual, {num_rows, channels}, "dropout residual") : nullptr,
          checked<T>(y, {num_rows, channels}, "dropout y")};
}

}  // namespace sixfold::kernels::cuda
