// make_cuda_queue() of builds without CUDA.
#include "kernels/queue.h"
#include "runtime/core/error.h"

#ifndef SIXFOLD_HAS_CUDA
namespace sixfold::kernels {

std::unique_ptr<Queue> make_cuda_queue(Device) {
  throw ConfigError("--device cuda: this build has no CUDA (allowed here: auto, cpu)");
}

}  // namespace sixfold::kernels
#endif
