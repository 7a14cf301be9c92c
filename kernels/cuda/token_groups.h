// The rows of each token, in order: what adds rows up by token needs no atomics on floats, and is the same every time.
#pragma once

#include "kernels/kernels.h"

namespace sixfold::kernels::cuda {

/// On the GPU, i32. The groups lie in `rows` one after the other, in an order that may change from call to call.
struct TokenGroups {
  Tensor counts;  // [V]: how many rows have token vocab_begin + v
  Tensor begins;  // [V]: where in `rows` they start; unspecified where there are none
  Tensor rows;    // [R]: rows of a group ascend; what is behind all groups is unspecified
};

/// Of tokens [R], on the GPU, those in [vocab_begin, vocab_begin + vocab). Issues kernels, and waits for nothing. Time
/// grows with the square of the rows of one token: 64k rows, all of one token, are 4 G comparisons by 64k threads.
TokenGroups group_by_token(Context& context, const Tensor& tokens, int64_t vocab_begin, int64_t vocab);

}  // namespace sixfold::kernels::cuda
