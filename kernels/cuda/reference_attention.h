// Attention from whole matrices of scores: what faster kernels are checked against, and what runs where they do not.
#pragma once

#include "kernels/kernels.h"

namespace sixfold::kernels::cuda {

/// As attention_forward() and attention_backward() (kernels.h), for any size of head. Scores of all heads and sequences
/// exist at once, [B, H, T, T]: one temporary in f32, two in backward, and as many more in bf16 where qkv is bf16.
/// Probabilities are rounded to qkv's dtype before they are multiplied with values or gradients; all else is f32.
void attention_reference_forward(Context& context, const Tensor& qkv, int64_t seq_len, int64_t num_heads,
                                 const Tensor& out, const Tensor& lse);
void attention_reference_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& lse,
                                  int64_t seq_len, int64_t num_heads, const Tensor& dqkv);

}  // namespace sixfold::kernels::cuda
