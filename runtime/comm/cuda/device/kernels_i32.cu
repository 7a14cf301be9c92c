#include "runtime/comm/cuda/device/kernel_pair.cuh"

namespace sixfold::comm {

KernelPair kernels_i32(ReduceOp op) {
  return pair_of<int32_t>(op);
}

}  // namespace sixfold::comm
