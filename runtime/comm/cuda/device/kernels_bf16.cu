#include "runtime/comm/cuda/device/kernel_set.cuh"

namespace sixfold::comm {

KernelSet kernels_bf16(ReduceOp op) {
  return set_of<BF16>(op);
}

}  // namespace sixfold::comm
