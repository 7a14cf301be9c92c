#include "kernels/attention_shape.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/reference_attention.h"
#include "kernels/cuda/temporaries.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cuda {

void attention_forward(Context& context, const Tensor& qkv, int64_t seq_len, int64_t num_heads, const Tensor& out,
                       const Tensor& lse) {
  if (attention_streams(AttentionShape(out, seq_len, num_heads).head_dim)) {
    attention_flash_forward(context, qkv, seq_len, num_heads, out, lse);
  } else {
    attention_reference_forward(context, qkv, seq_len, num_heads, out, lse);
  }
}

void attention_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                        int64_t seq_len, int64_t num_heads, const Tensor& dqkv) {
  if (attention_streams(AttentionShape(out, seq_len, num_heads).head_dim)) {
    attention_flash_backward(context, dout, qkv, out, lse, seq_len, num_heads, dqkv);
  } else {
    attention_reference_backward(context, dout, qkv, lse, seq_len, num_heads, dqkv);
  }
}

}  // namespace sixfold::kernels::cuda
