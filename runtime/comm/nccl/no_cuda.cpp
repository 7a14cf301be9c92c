// make_cuda_nccl_setup() of builds without CUDA.
#include "runtime/comm/nccl/stream_queue.h"
#include "runtime/core/error.h"

#ifndef SIXFOLD_HAS_CUDA
namespace sixfold::comm {

std::shared_ptr<const NcclSetup> make_cuda_nccl_setup() {
  throw ConfigError("--comm nccl: this build has no CUDA (allowed here: own)");
}

}  // namespace sixfold::comm
#endif
