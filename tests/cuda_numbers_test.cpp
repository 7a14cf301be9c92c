#include "tests/cuda_cases/number_cases.h"
#include "tests/cuda_cases/optimizer_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

/// Both devices have the same cases, the CPU with one thread and with three.
struct Numbers : testing::Test {
  EmulatedGpu gpu;
  Memory memory;
  std::vector<kernels::Context> contexts{gpu.context(), {memory, 1}, {memory, 3}};
};

TEST_F(Numbers, SumOfSquaresIsExactInDoubleAndTheSameAtAnyAddress) {
  for (kernels::Context& context : contexts) check_sum_of_squares(context);
}

TEST_F(Numbers, SquaresByElementAreAddedWithoutRounding) {
  for (kernels::Context& context : contexts) check_exact_sum_of_squares(context);
}

TEST_F(Numbers, ReciprocalOfNothingIsZero) {
  for (kernels::Context& context : contexts) check_reciprocal(context);
}

TEST_F(Numbers, FixedPointIsOfTheSumInDouble) {
  for (kernels::Context& context : contexts) check_fixed_point(context);
}

TEST_F(Numbers, ClipFactorBringsTheNormToTheMaximum) {
  for (kernels::Context& context : contexts) check_clip_factor(context);
}

TEST_F(Numbers, UpdatesAreSkippedOnBothDevices) {
  for (kernels::Context& context : contexts) check_skipped_update(context);
}

}  // namespace
}  // namespace sixfold::test
