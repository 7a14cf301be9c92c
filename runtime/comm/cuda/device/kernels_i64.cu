#include "runtime/comm/cuda/device/kernel_pair.cuh"

namespace sixfold::comm {

KernelPair kernels_i64(ReduceOp op) {
  return pair_of<int64_t>(op);
}

}  // namespace sixfold::comm
