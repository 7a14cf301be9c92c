// The sizes of an attention call, and where one head's rows of one sequence are (kernels.h, attention_*).
#pragma once

#include <cmath>

#include "runtime/core/host_device.h"
#include "runtime/core/tensor.h"

namespace sixfold::kernels {

struct AttentionShape {
  int64_t num_rows, seq_len, num_heads, head_dim;  // B, T, H, D

  /// Throws CheckError unless out [R, H D] is whole sequences and whole heads.
  AttentionShape(const Tensor& out, int64_t seq_len_, int64_t num_heads_) : seq_len(seq_len_), num_heads(num_heads_) {
    SIXFOLD_CHECK_EQ(out.rank(), size_t{2}, "attention out has another number of dims");
    SIXFOLD_CHECK(seq_len > 0 && out.dim(0) % seq_len == 0, "attention rows must be whole sequences");
    SIXFOLD_CHECK(num_heads > 0 && out.dim(1) % num_heads == 0, "attention channels must be whole heads");
    num_rows = out.dim(0) / seq_len;
    head_dim = out.dim(1) / num_heads;
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  SIXFOLD_HD int64_t num_channels() const { return num_heads * head_dim; }
  SIXFOLD_HD int64_t qkv_stride() const { return 3 * num_channels(); }
  /// Offset of q (part 0), k (1) or v (2) of head h at position t of sequence b.
  SIXFOLD_HD int64_t qkv_offset(int64_t part, int64_t b, int64_t h, int64_t t) const {
    return (b * seq_len + t) * qkv_stride() + part * num_channels() + h * head_dim;
  }
  SIXFOLD_HD int64_t out_offset(int64_t b, int64_t h, int64_t t) const {
    return (b * seq_len + t) * num_channels() + h * head_dim;
  }
  SIXFOLD_HD int64_t lse_offset(int64_t b, int64_t h, int64_t t) const { return (b * num_heads + h) * seq_len + t; }
};

}  // namespace sixfold::kernels
