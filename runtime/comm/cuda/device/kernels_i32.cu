#include "runtime/comm/cuda/device/kernel_set.cuh"

namespace sixfold::comm {

KernelSet kernels_i32(ReduceOp op) {
  return set_of<int32_t>(op);
}

}  // namespace sixfold::comm
