#include "runtime/comm/cuda/device/kernel_set.cuh"

namespace sixfold::comm {

KernelSet kernels_f16(ReduceOp op) {
  return set_of<F16>(op);
}

}  // namespace sixfold::comm
