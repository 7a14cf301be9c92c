// What the forward and the backward pass of attention share.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/attention_shape.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/temporaries.h"

namespace sixfold::kernels {

struct TiledAttention : AttentionShape {
  using AttentionShape::AttentionShape;
  int64_t num_tiles() const { return (seq_len + cpu::kAttentionTile - 1) / cpu::kAttentionTile; }
  int64_t tile_size(int64_t tile) const { return std::min(cpu::kAttentionTile, seq_len - tile * cpu::kAttentionTile); }
};

}  // namespace sixfold::kernels
