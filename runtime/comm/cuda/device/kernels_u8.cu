#include "runtime/comm/cuda/device/kernel_set.cuh"

namespace sixfold::comm {

KernelSet kernels_u8(ReduceOp op) {
  return set_of<uint8_t>(op);
}

}  // namespace sixfold::comm
