#include "runtime/comm/cuda/device/kernel_set.h"

namespace sixfold::comm {

KernelSet kernels_of(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::F32:
      return kernels_f32(op);
    case DType::BF16:
      return kernels_bf16(op);
    case DType::F16:
      return kernels_f16(op);
    case DType::I32:
      return kernels_i32(op);
    case DType::I64:
      return kernels_i64(op);
    case DType::U8:
      break;
  }
  return kernels_u8(op);
}

}  // namespace sixfold::comm
