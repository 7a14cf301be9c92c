#include "runtime/comm/cuda/device/kernel_pair.cuh"

namespace sixfold::comm {

KernelPair kernels_f16(ReduceOp op) {
  return pair_of<F16>(op);
}

}  // namespace sixfold::comm
