#include "tests/cuda_cases/copies_cases.h"
#include "tests/cuda_cases/elementwise_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

TEST(CudaCopies, CopyAndZeroEveryByteAndNoOther) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_copies(context);
}

TEST(CudaElementwise, GeluEqualsReference) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_gelu(context);
}

TEST(CudaElementwise, AccumulateAddsOnce) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_accumulate(context);
}

TEST(CudaElementwise, ConvertRoundsToBf16AndBack) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_convert(context);
}

TEST(CudaElementwise, SwapDimsMovesEachBlockToItsPlace) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_swap_dims(context);
}

TEST(EmulatedGpu, IsNotForTheCpuToLookAt) {
  EmulatedGpu gpu;
  const Tensor t = Tensor::empty({1}, DType::F32, gpu.memory, Category::Other);
  EXPECT_THROW(t.data<float>(), CheckError);
}

}  // namespace
}  // namespace sixfold::test
