// ExactSum: numbers added without any rounding, so that their order and grouping do not matter.
//
// A fixed-point number of 608 bits, wide enough for all squares of f32 values and their sums: 2^-298 is the square of
// the smallest f32, 2^256 exceeds that of the largest. Source: Kulisch, "Computer arithmetic and validity", 2008,
// chapter 8 (long accumulators).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/kernels.h"
#include "runtime/comm/communicator.h"

namespace sixfold::train {

class ExactSum {
 public:
  /// Adds `value`, 0 or positive, a multiple of 2^-298 and below 2^296, as squares of f32 and sums of those are; or one
  /// that is not finite, which makes the sum so.
  void add(double value);
  /// The sum becomes that over all ranks of the group, on each of them. Collective: one AllReduce of 160 bytes on
  /// `place`.
  void all_reduce(const kernels::Place& place, comm::Communicator& group, const std::string& tag);
  /// Rounded once. NaN when anything that was added is not finite.
  double value() const;

 private:
  static constexpr int kLowestExponent = -298;
  static constexpr size_t kNumLimbs = 19;
  static constexpr int64_t kMaxPending = int64_t{1} << 29;

  void carry();

  // Limb i counts 2^(32 i - 298), in 32 bits and what has not been carried yet; the last number counts values that are
  // not finite.
  std::array<int64_t, kNumLimbs + 1> limbs_{};
  int64_t num_pending_ = 0;  // additions since the last carry: each adds less than 2^32 to a limb
};

}  // namespace sixfold::train
