// What the forward and the backward pass of attention share.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/attention_shape.h"
#include "kernels/cpu/checks.h"

namespace sixfold::kernels {

/// Queries and keys of one tile. Scores exist one tile at a time.
inline constexpr int64_t kAttentionTile = 64;

struct TiledAttention : AttentionShape {
  using AttentionShape::AttentionShape;
  int64_t num_tiles() const { return (seq_len + kAttentionTile - 1) / kAttentionTile; }
  int64_t tile_size(int64_t tile) const { return std::min(kAttentionTile, seq_len - tile * kAttentionTile); }
};

}  // namespace sixfold::kernels
