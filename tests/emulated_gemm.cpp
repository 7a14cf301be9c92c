// Matrix products in cuBLASLt's place (kernels/cuda/gemm.h), by plain loops. It has no epilogues: our own kernel runs.
#include "kernels/cuda/gemm.h"
#include "runtime/core/dtype.h"

namespace sixfold::kernels::cuda {

namespace {

float read(const void* data, DType dtype, int64_t i) {
  return dtype == DType::F32 ? static_cast<const float*>(data)[i]
                             : static_cast<float>(static_cast<const BF16*>(data)[i]);
}

void write(void* data, DType dtype, int64_t i, float value) {
  if (dtype == DType::F32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<BF16*>(data)[i] = BF16(value);
  }
}

float element(const GemmOperand& o, int64_t matrix, int64_t row, int64_t column) {
  const int64_t place = o.transposed ? column * o.stride + row : row * o.stride + column;
  return read(o.data, o.dtype, matrix * o.batch_stride + place);
}

}  // namespace

bool multiply(Context&, const Gemm& g) {
  if (g.epilogue != Epilogue::None) return false;
  for (int64_t matrix = 0; matrix < g.batch; ++matrix) {
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.n; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < g.k; ++k) sum += element(g.a, matrix, i, k) * element(g.b, matrix, k, j);
        sum *= g.scale;
        const int64_t place = matrix * g.c.batch_stride + i * g.c.stride + j;
        if (g.accumulate) sum += read(g.c.data, g.c.dtype, place);
        write(g.c.data, g.c.dtype, place, sum);
      }
    }
  }
  return true;
}

}  // namespace sixfold::kernels::cuda
