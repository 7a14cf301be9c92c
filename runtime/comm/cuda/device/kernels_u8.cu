#include "runtime/comm/cuda/device/kernel_pair.cuh"

namespace sixfold::comm {

KernelPair kernels_u8(ReduceOp op) {
  return pair_of<uint8_t>(op);
}

}  // namespace sixfold::comm
