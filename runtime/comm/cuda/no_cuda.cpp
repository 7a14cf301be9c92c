// make_cuda_grid() of builds without CUDA.
#include "runtime/comm/cuda/grid_device.h"
#include "runtime/core/error.h"

#ifndef SIXFOLD_HAS_CUDA
namespace sixfold::comm {

std::shared_ptr<GridDevice> make_cuda_grid(int, double) {
  throw ConfigError("--device cuda: this build has no CUDA (allowed here: auto, cpu)");
}

}  // namespace sixfold::comm
#endif
