#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cpu {

void token_embedding_forward(Context& context, const Tensor& tokens, const Tensor& weight, int64_t vocab_begin,
                             const Tensor& y) {
  const int64_t rows = checked_dim(y, 2, 0, "embedding y"), channels = y.dim(1);
  const int64_t vocab = checked_dim(weight, 2, 0, "embedding weight");
  const int32_t* ids = checked<int32_t>(tokens, {rows}, "embedding tokens");
  const float* table = checked<float>(weight, {vocab, channels}, "embedding weight");
  float* out = checked<float>(y, {rows, channels}, "embedding y");
  parallel_ranges(context.num_threads, rows, rows_per_piece(channels), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t id = ids[r] - vocab_begin;
      if (id >= 0 && id < vocab)
        std::copy_n(table + id * channels, channels, out + r * channels);
      else
        std::fill_n(out + r * channels, channels, 0.0f);
    }
  });
}

void token_embedding_backward(Context& context, const Tensor& tokens, const Tensor& dy, int64_t vocab_begin,
                              const Tensor& dweight) {
  // Two rows may hold the same token, so threads share out channels, not rows.
  constexpr int64_t kChannelsPerPiece = 64;
  const int64_t rows = checked_dim(dy, 2, 0, "embedding dy"), channels = dy.dim(1);
  const int64_t vocab = checked_dim(dweight, 2, 0, "embedding dweight");
  const int32_t* ids = checked<int32_t>(tokens, {rows}, "embedding tokens");
  const float* gradient = checked<float>(dy, {rows, channels}, "embedding dy");
  float* out = checked<float>(dweight, {vocab, channels}, "embedding dweight");
  parallel_ranges(context.num_threads, channels, kChannelsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t id = ids[r] - vocab_begin;
      if (id < 0 || id >= vocab) continue;
      for (int64_t c = begin; c < end; ++c) out[id * channels + c] += gradient[r * channels + c];
    }
  });
}

namespace {

void check_positions(const TokenRows& rows, const Tensor& table) {
  SIXFOLD_CHECK_LE(int64_t{0}, rows.seq_offset, "negative position");
  SIXFOLD_CHECK_LE(rows.seq_offset + rows.seq_len, table.dim(0), "more positions than the table has");
}

}  // namespace

void position_embedding_forward(Context& context, const TokenRows& rows, const Tensor& weight, const Tensor& y) {
  const int64_t num_rows = rows.num_rows * rows.seq_len, channels = checked_dim(weight, 2, 1, "position weight");
  check_positions(rows, weight);
  const float* table = checked<float>(weight, {weight.dim(0), channels}, "position weight");
  float* out = checked<float>(y, {num_rows, channels}, "position y");
  parallel_ranges(context.num_threads, num_rows, rows_per_piece(channels), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* position = table + (rows.seq_offset + r % rows.seq_len) * channels;
      for (int64_t c = 0; c < channels; ++c) out[r * channels + c] += position[c];
    }
  });
}

void position_embedding_backward(Context& context, const TokenRows& rows, const Tensor& dy, const Tensor& dweight) {
  const int64_t num_rows = rows.num_rows * rows.seq_len, channels = checked_dim(dweight, 2, 1, "position dweight");
  check_positions(rows, dweight);
  const float* gradient = checked<float>(dy, {num_rows, channels}, "position dy");
  float* out = checked<float>(dweight, {dweight.dim(0), channels}, "position dweight");
  parallel_ranges(context.num_threads, rows.seq_len, rows_per_piece(channels), [&](int64_t begin, int64_t end) {
    for (int64_t b = 0; b < rows.num_rows; ++b)
      for (int64_t t = begin; t < end; ++t) {
        const float* row = gradient + (b * rows.seq_len + t) * channels;
        float* position = out + (rows.seq_offset + t) * channels;
        for (int64_t c = 0; c < channels; ++c) position[c] += row[c];
      }
  });
}

}  // namespace sixfold::kernels::cpu
