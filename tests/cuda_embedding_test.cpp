#include "tests/cuda_cases/embedding_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

TEST(CudaTokenGroups, RowsOfATokenAscend) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_token_groups(context);
}

TEST(CudaEmbedding, TokensHaveTheBitsOfTheCpu) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_token_embedding(context);
}

TEST(CudaEmbedding, PositionsHaveTheBitsOfTheCpu) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_position_embedding(context);
}

}  // namespace
}  // namespace sixfold::test
