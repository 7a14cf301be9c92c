// Which functions carry out the operations of kernels.h on a device: the CPU (cpu/), or a GPU (cuda/).
//
// An operation has one signature, in kernels.h. What carries it out on a device is a function of the same name and type
// in that device's namespace, so that nothing has to be declared twice.
#pragma once

#include "kernels/kernels.h"

namespace sixfold::kernels {

/// X(name) for every operation.
#define SIXFOLD_KERNELS(X)       \
  X(zero)                        \
  X(copy)                        \
  X(matmul)                      \
  X(linear_forward)              \
  X(linear_gelu_forward)         \
  X(linear_backward_input)       \
  X(linear_gelu_backward_input)  \
  X(linear_backward_weight)      \
  X(layernorm_forward)           \
  X(layernorm_backward_input)    \
  X(layernorm_backward_weight)   \
  X(gelu_forward)                \
  X(gelu_backward)               \
  X(accumulate)                  \
  X(swap_dims)                   \
  X(convert)                     \
  X(dropout_forward)             \
  X(dropout_backward)            \
  X(residual_layernorm_forward)  \
  X(token_embedding_forward)     \
  X(token_embedding_backward)    \
  X(position_embedding_forward)  \
  X(position_embedding_backward) \
  X(attention_forward)           \
  X(attention_backward)          \
  X(cross_entropy_statistics)    \
  X(cross_entropy_rescale)       \
  X(cross_entropy_loss)          \
  X(cross_entropy_backward)      \
  X(adamw_update)                \
  X(sgd_update)                  \
  X(reciprocal)                  \
  X(to_fixed_point)              \
  X(add_squares)                 \
  X(clip_factor)

/// A pointer to each of the functions.
struct KernelTable {
#define SIXFOLD_MEMBER(name) decltype(&kernels::name) name;
  SIXFOLD_KERNELS(SIXFOLD_MEMBER)
#undef SIXFOLD_MEMBER
};

#define SIXFOLD_DECLARE(name) decltype(kernels::name) name;
namespace cpu {
SIXFOLD_KERNELS(SIXFOLD_DECLARE)
}
namespace cuda {
SIXFOLD_KERNELS(SIXFOLD_DECLARE)
}  // namespace cuda
#undef SIXFOLD_DECLARE

}  // namespace sixfold::kernels
