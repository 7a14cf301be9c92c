// Matrix products on a GPU, below linear layers and attention.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace sixfold::kernels::cuda {

/// A row-major matrix on the GPU whose rows start `stride` elements apart; read as its transpose where the flag is set.
/// Matrix i of a batch starts i * batch_stride elements on.
struct GemmOperand {
  void* data = nullptr;
  DType dtype = DType::F32;  // f32 or bf16
  int64_t stride = 0;
  bool transposed = false;
  int64_t batch_stride = 0;
};

/// What becomes of a product before it is stored.
enum class Epilogue : uint8_t {
  None,
  Bias,          // + bias[n] in every row
  BiasGelu,      // the sum with bias is stored in `aux`, its GELU in c
  GeluBackward,  // times gelu'(aux), aux being what BiasGelu stored
};

/// c[m, n] = scale * op(a)[m, k] op(b)[k, n], or c += with `accumulate`, for each matrix of the batch; then the
/// epilogue, which batches and accumulated products do without. Products are added in f32: of f32 in full precision (no
/// TF32), of bf16 exactly before each addition. a and b have one dtype; c has it too, or is f32.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  GemmOperand a, b;
  GemmOperand c;  // not transposed
  int64_t batch = 1;
  float scale = 1;
  bool accumulate = false;
  Epilogue epilogue = Epilogue::None;
  const void* bias = nullptr;  // [n], of c's dtype
  void* aux = nullptr;         // [m, n], of c's dtype and stride
};

/// Issues the product to the context's queue; k > 0, unless it is to be added. Where the library has no kernel with the
/// epilogue, one of ours follows, and of bf16 the product is rounded before it as well as after. Throws CommError for
/// what the library refuses.
void gemm(Context& context, const Gemm& gemm);

/// The library's part of gemm(), for products that are not empty: device/cublas_gemm.cpp. False, with nothing done:
/// there is an epilogue, and the library does not have it for this product.
bool multiply(Context& context, const Gemm& gemm);

}  // namespace sixfold::kernels::cuda
