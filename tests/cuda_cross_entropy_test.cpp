#include "tests/cuda_cases/cross_entropy_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

TEST(CudaCrossEntropy, EqualsReference) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_cross_entropy(context);
}

TEST(CudaCrossEntropy, SplitOverTheVocabularyEqualsWhole) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_cross_entropy_of_group(context, false);
  check_cross_entropy_of_group(context, true);
}

TEST(CudaCrossEntropy, ExtremesStayNumbers) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_cross_entropy_of_extremes(context);
}

}  // namespace
}  // namespace sixfold::test
