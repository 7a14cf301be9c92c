#include "runtime/comm/cuda/device/kernel_pair.cuh"

namespace sixfold::comm {

KernelPair kernels_bf16(ReduceOp op) {
  return pair_of<BF16>(op);
}

}  // namespace sixfold::comm
