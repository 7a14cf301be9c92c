// Matrix products on raw pointers, below matmul(), the linear layers and attention.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace sixfold::kernels {

/// A row-major matrix whose rows start `stride` elements apart; read as its transpose where the flag is set.
struct Operand {
  const float* data;
  int64_t stride;
  bool transposed;
};

/// c[m, n] += op(a)[m, k] op(b)[k, n], on the calling thread. Rows of c start c_stride elements apart.
void gemm_tile(int64_t m, int64_t n, int64_t k, Operand a, Operand b, float* c, int64_t c_stride);

/// What the elements of c are before the product is added.
enum class GemmStart { Zero, Keep, Bias };

/// As gemm_tile on context.num_threads threads, after setting c to 0, to itself or to bias[n] in every row.
void gemm(Context& context, int64_t m, int64_t n, int64_t k, Operand a, Operand b, float* c, GemmStart start,
          const float* bias);

}  // namespace sixfold::kernels
