#include "runtime/comm/cuda/device/kernel_pair.cuh"

namespace sixfold::comm {

KernelPair kernels_f32(ReduceOp op) {
  return pair_of<float>(op);
}

}  // namespace sixfold::comm
