// make_cuda_provider() of builds without CUDA.
#include "runtime/comm/cuda/gpu_provider.h"
#include "runtime/core/error.h"

#ifndef SIXFOLD_HAS_CUDA
namespace sixfold::comm {

std::shared_ptr<GpuProvider> make_cuda_provider(double) {
  throw ConfigError("--device cuda: this build has no CUDA (allowed here: auto, cpu)");
}

}  // namespace sixfold::comm
#endif
