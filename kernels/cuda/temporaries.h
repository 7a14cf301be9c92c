// How much memory a GPU's kernels take while they run (kernels/temporaries.h), by which they allocate it. Plain C++:
// builds without CUDA predict, too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/flash_attention.h"

namespace sixfold::kernels::cuda {

/// Each lane draws the factors that it needs.
constexpr int64_t dropout_temporaries() {
  return 0;
}

/// Larger heads get attention by whole matrices (reference_attention.h).
constexpr bool attention_streams(int64_t head_dim) {
  return head_dim <= kFlashMaxHeadDim;
}
/// Of attention_flash_backward(): delta.
constexpr int64_t attention_backward_temporaries(int64_t num_tokens, int64_t num_heads) {
  return int64_t{sizeof(float)} * num_tokens * num_heads;
}

/// How column_sums.h cuts rows: chunks of at least kMinRowsPerChunk, and at most kMaxChunks of them.
struct RowChunks {
  static constexpr int64_t kMinRowsPerChunk = 16, kMaxChunks = 1024;
  int64_t rows_per_chunk, num_chunks;

  constexpr explicit RowChunks(int64_t num_rows)
      : rows_per_chunk(std::max(kMinRowsPerChunk, (num_rows + kMaxChunks - 1) / kMaxChunks)),
        num_chunks((num_rows + rows_per_chunk - 1) / rows_per_chunk) {}
};
/// num_columns: of all sums that are made at once.
constexpr int64_t column_sum_temporaries(int64_t num_rows, int64_t num_columns) {
  return int64_t{sizeof(float)} * RowChunks(num_rows).num_chunks * num_columns;
}

}  // namespace sixfold::kernels::cuda
