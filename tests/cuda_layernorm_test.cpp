#include "tests/cuda_cases/layernorm_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

TEST(CudaLayerNorm, EqualsReference) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_layernorm(context);
}

TEST(CudaLayerNorm, LargeMeanDoesNotCancel) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_layernorm_of_large_mean(context);
}

TEST(CudaLayerNorm, OfTheSumWithTheResidual) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_residual_layernorm(context);
}

}  // namespace
}  // namespace sixfold::test
