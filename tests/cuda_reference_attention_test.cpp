#include "tests/cuda_cases/reference_attention_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

TEST(CudaReferenceAttention, IsThatOfTheCpu) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_reference_attention(context);
}

}  // namespace
}  // namespace sixfold::test
