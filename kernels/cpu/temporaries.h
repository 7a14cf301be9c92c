// How much memory the CPU's kernels take while they run (kernels/temporaries.h), by which they allocate it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sixfold::kernels::cpu {

/// Floats from one thread's scratch to the next one's: whole cache lines.
constexpr int64_t scratch_stride(int64_t num_floats) {
  return (num_floats + 15) / 16 * 16;
}
constexpr int64_t scratch_bytes(int64_t num_floats, int num_threads) {
  return int64_t{sizeof(float)} * std::max(1, num_threads) * scratch_stride(num_floats);
}

/// A row of factors of dropout: whole Philox blocks of four channels.
constexpr int64_t dropout_scratch(int64_t num_channels) {
  return (num_channels + 3) / 4 * 4;
}
constexpr int64_t dropout_temporaries(int64_t num_channels, int num_threads) {
  return scratch_bytes(dropout_scratch(num_channels), num_threads);
}

/// Queries and keys of one tile. Scores exist one tile at a time.
inline constexpr int64_t kAttentionTile = 64, kAttentionTileFloats = kAttentionTile * kAttentionTile;
/// P and dS of a tile, and delta of one head's queries.
constexpr int64_t attention_backward_scratch(int64_t seq_len) {
  return 2 * kAttentionTileFloats + seq_len;
}
constexpr int64_t attention_backward_temporaries(int64_t seq_len, int num_threads) {
  return scratch_bytes(attention_backward_scratch(seq_len), num_threads);
}

/// Rows that sum_rows() (column_sums.h) has one thread add up.
inline constexpr int64_t kRowsPerChunk = 128;
constexpr int64_t num_row_chunks(int64_t num_rows) {
  return (num_rows + kRowsPerChunk - 1) / kRowsPerChunk;
}
constexpr int64_t column_sum_temporaries(int64_t num_rows, int64_t num_columns) {
  return int64_t{sizeof(float)} * num_row_chunks(num_rows) * num_columns;
}

}  // namespace sixfold::kernels::cpu
