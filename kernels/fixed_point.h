// FixedPoint: a number as a whole one, so that a sum over ranks is the same to the bit in any order of additions.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/core/host_device.h"

namespace sixfold::kernels {

/// Its two words are added up over ranks, each with each. Absolute error below 2^-32 per rank.
struct FixedPoint {
  int64_t units = 0;        // of 2^-32
  int64_t num_invalid = 0;  // ranks whose number is none

  /// `value` as one of at most num_ranks addends; invalid where it is not finite or not below 2^31 / num_ranks.
  SIXFOLD_HD static FixedPoint of(double value, int num_ranks) {
    if (std::fabs(value) < 0x1p31 / num_ranks) return {std::llround(value * 0x1p32), 0};  // false for NaN
    return {0, 1};
  }
  /// NaN when an addend was invalid.
  SIXFOLD_HD double value() const { return num_invalid > 0 ? NAN : static_cast<double>(units) * 0x1p-32; }
};

}  // namespace sixfold::kernels
