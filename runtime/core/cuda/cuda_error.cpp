#include "runtime/core/cuda/cuda_error.h"

#include "runtime/core/error.h"

namespace sixfold::cuda {

void check_cuda(cudaError_t code, const std::string& what) {
  if (code == cudaSuccess) return;
  throw CommError(what + ": " + cudaGetErrorName(code) + " (" + cudaGetErrorString(code) + ")");
}

}  // namespace sixfold::cuda
