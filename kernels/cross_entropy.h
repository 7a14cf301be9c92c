// What the cross-entropy of either device computes of a row.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/vector_math.h"

namespace sixfold::kernels {

/// Columns of a rank that are symbols; the rest pads the vocabulary.
inline int64_t num_real_columns(int64_t columns, int64_t vocab_begin, int64_t vocab_size) {
  return std::clamp<int64_t>(vocab_size - vocab_begin, 0, columns);
}

/// What logits whose maximum is `row_max` are reduced by before exp. Where all of them are -inf nothing: exp of them is
/// 0, of their difference to the maximum it would be NaN.
SIXFOLD_HD inline float subtracted(float row_max) {
  return row_max == -INFINITY ? 0.0f : row_max;
}

/// Turns a sum of exponentials relative to the maximum `from` into one relative to `to` >= from. 1 also where both are
/// -inf, and the sum 0.
SIXFOLD_HD inline float rescale_factor(float from, float to) {
  return from == to ? 1.0f : exp_f32(from - to);
}

SIXFOLD_HD inline double row_loss(float row_max, float sum_of_exp, float target_logit) {
  return std::log(static_cast<double>(sum_of_exp)) - static_cast<double>(target_logit - row_max);
}

}  // namespace sixfold::kernels
