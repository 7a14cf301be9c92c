#include "tests/cuda_cases/column_sums_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

TEST(CudaColumnSums, EqualReference) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_column_sums(context);
}

}  // namespace
}  // namespace sixfold::test
