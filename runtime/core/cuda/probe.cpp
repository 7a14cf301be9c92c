// probe_cuda() of builds with CUDA.
#include <cuda_runtime_api.h>

#include "runtime/core/device.h"

namespace sixfold {

CudaProbe probe_cuda() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return {count, ""};
  if (code == cudaSuccess || code == cudaErrorNoDevice) return {0, "this machine has no GPU that CUDA can use"};
  const auto version = [](int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  };
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  if (code == cudaErrorInsufficientDriver) {
    return {0, driver == 0 ? "no driver for a GPU is installed"
                           : "the driver knows CUDA " + version(driver) + ", this build needs " + version(runtime)};
  }
  return {0, std::string(cudaGetErrorName(code)) + ": " + cudaGetErrorString(code)};
}

}  // namespace sixfold
