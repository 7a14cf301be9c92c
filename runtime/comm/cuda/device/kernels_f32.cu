#include "runtime/comm/cuda/device/kernel_set.cuh"

namespace sixfold::comm {

KernelSet kernels_f32(ReduceOp op) {
  return set_of<float>(op);
}

}  // namespace sixfold::comm
