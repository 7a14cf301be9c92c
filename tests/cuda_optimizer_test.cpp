#include "tests/cuda_cases/optimizer_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

TEST(CudaOptimizer, AdamWEqualsTheRecurrenceInDouble) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_adamw(context);
}

TEST(CudaOptimizer, SgdEqualsFormula) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_sgd(context);
}

}  // namespace
}  // namespace sixfold::test
