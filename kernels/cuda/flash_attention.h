// Attention that keeps no matrix of scores: what the models run.
#pragma once

#include "kernels/kernels.h"

namespace sixfold::kernels::cuda {

inline constexpr int64_t kFlashMaxHeadDim = 128;

/// As attention_forward() and attention_backward() (kernels.h), for heads of up to kFlashMaxHeadDim channels: those of
/// 32, 64 and 128 fill their tiles. Of bf16, P and dS are rounded before they are multiplied; all else is f32. Backward
/// takes one float a query and head for a temporary. Throw CheckError for larger heads.
void attention_flash_forward(Context& context, const Tensor& qkv, int64_t seq_len, int64_t num_heads, const Tensor& out,
                             const Tensor& lse);
void attention_flash_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                              const Tensor& lse, int64_t seq_len, int64_t num_heads, const Tensor& dqkv);

}  // namespace sixfold::kernels::cuda
