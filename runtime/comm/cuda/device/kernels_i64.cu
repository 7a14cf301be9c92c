#include "runtime/comm/cuda/device/kernel_set.cuh"

namespace sixfold::comm {

KernelSet kernels_i64(ReduceOp op) {
  return set_of<int64_t>(op);
}

}  // namespace sixfold::comm
