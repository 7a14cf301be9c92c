#include "tests/cuda_cases/dropout_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

TEST(CudaDropout, DrawsTheMasksOfTheCpu) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_dropout(context);
}

TEST(CudaDropout, ZeroProbabilityIsTheIdentityAndOneIsRefused) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_dropout_of_nothing(context);
}

}  // namespace
}  // namespace sixfold::test
