// What the forward and the backward pass of attention share.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cpu/checks.h"

namespace sixfold::kernels {

/// Queries and keys of one tile. Scores exist one tile at a time.
inline constexpr int64_t kAttentionTile = 64;

/// The sizes of an attention call, and where one head's rows of one sequence are.
struct AttentionShape {
  int64_t num_rows, seq_len, num_heads, head_dim;  // B, T, H, D

  AttentionShape(const Tensor& out, int64_t seq_len_, int64_t num_heads_) : seq_len(seq_len_), num_heads(num_heads_) {
    const int64_t rows = checked_dim(out, 2, 0, "attention out"), channels = out.dim(1);
    SIXFOLD_CHECK(seq_len > 0 && rows % seq_len == 0, "attention rows must be whole sequences");
    SIXFOLD_CHECK(num_heads > 0 && channels % num_heads == 0, "attention channels must be whole heads");
    num_rows = rows / seq_len;
    head_dim = channels / num_heads;
  }

  int64_t num_channels() const { return num_heads * head_dim; }
  int64_t qkv_stride() const { return 3 * num_channels(); }
  int64_t num_tiles() const { return (seq_len + kAttentionTile - 1) / kAttentionTile; }
  int64_t tile_size(int64_t tile) const { return std::min(kAttentionTile, seq_len - tile * kAttentionTile); }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  /// Offset of q (part 0), k (1) or v (2) of head h at position t of sequence b.
  int64_t qkv_offset(int64_t part, int64_t b, int64_t h, int64_t t) const {
    return (b * seq_len + t) * qkv_stride() + part * num_channels() + h * head_dim;
  }
  int64_t out_offset(int64_t b, int64_t h, int64_t t) const {
    return (b * seq_len + t) * num_channels() + h * head_dim;
  }
  int64_t lse_offset(int64_t b, int64_t h, int64_t t) const { return (b * num_heads + h) * seq_len + t; }
};

}  // namespace sixfold::kernels
