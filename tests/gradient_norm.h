// The global norm of gradients as numbers that tests can look at.
#pragma once

#include "runtime/train/gradient_norm.h"
#include "tests/numbers.h"

namespace sixfold::test {

inline constexpr kernels::SquareSums kSquareSums[] = {kernels::SquareSums::ByTensor, kernels::SquareSums::ByElement};

/// train::gradient_sum_of_squares, rounded. Collective over the groups.
inline double gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments,
                                      const train::NormGroups& groups, kernels::SquareSums how) {
  const Tensor sum = empty_sum(context);
  train::gradient_sum_of_squares(context, segments, groups, how, sum);
  return value_of_sum(context, sum);
}

}  // namespace sixfold::test
