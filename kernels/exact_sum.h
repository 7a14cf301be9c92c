// ExactSum: numbers added without any rounding, so that their order and grouping do not matter.
//
// A fixed-point number of 608 bits, wide enough for all squares of f32 values and their sums: 2^-298 is the square of
// the smallest f32, 2^256 exceeds that of the largest. Source: Kulisch, "Computer arithmetic and validity", 2008,
// chapter 8 (long accumulators).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/core/host_device.h"

namespace sixfold::kernels {

/// Its words are whole numbers: added up over ranks, each with each, they are the sum of the sums.
struct ExactSum {
  static constexpr int kLowestExponent = -298;
  static constexpr int kNumLimbs = 19;
  static constexpr int kNumWords = kNumLimbs + 1;

  // Limb i counts 2^(32 i - 298), in 32 bits and what has not been carried yet; the last word counts values that are
  // none.
  int64_t words[kNumWords] = {};

  /// Adds `value`, 0 or positive, a multiple of 2^-298 and below 2^296, as squares of f32 and sums of those are; any
  /// other (NaN, infinity) makes the sum NaN. carry() is due after 2^30 values at the latest.
  SIXFOLD_HD void add(double value) {
    constexpr int kMantissaBits = 52, kExponentMask = 0x7ff, kBias = 1023;
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    const int field = static_cast<int>(bits >> kMantissaBits) & kExponentMask;
    if (value == 0) return;
    uint64_t mantissa = (bits & ((uint64_t{1} << kMantissaBits) - 1)) | uint64_t{field > 0} << kMantissaBits;
    int place = (field > 0 ? field : 1) - kBias - kMantissaBits - kLowestExponent;  // of the lowest bit
    if (place < 0) {                                                                // the bits below are 0
      mantissa = place > -64 ? mantissa >> -place : 0;
      place = 0;
    }
    const int limb = place / kLimbBits, shift = place % kLimbBits;
    if (!(value > 0) || field == kExponentMask || limb + 2 >= kNumLimbs) {
      ++words[kNumLimbs];
      return;
    }
    // 53 bits, shifted by less than 32, are in three limbs.
    const uint64_t low = (mantissa & kLimbMask) << shift, high = (mantissa >> kLimbBits) << shift;
    const uint64_t middle = (low >> kLimbBits) + (high & kLimbMask);
    words[limb] += static_cast<int64_t>(low & kLimbMask);
    words[limb + 1] += static_cast<int64_t>(middle & kLimbMask);
    words[limb + 2] += static_cast<int64_t>((middle >> kLimbBits) + (high >> kLimbBits));
  }

  SIXFOLD_HD void add(const ExactSum& other) {
    for (int i = 0; i < kNumWords; ++i) words[i] += other.words[i];
  }

  /// Leaves 32 bits in each limb.
  SIXFOLD_HD void carry() {
    for (int i = 0; i + 1 < kNumLimbs; ++i) {
      words[i + 1] += words[i] >> kLimbBits;
      words[i] &= static_cast<int64_t>(kLimbMask);
    }
  }

  /// Rounded once. NaN when anything that was added is no number.
  SIXFOLD_HD double value() const {
    if (words[kNumLimbs] > 0) return NAN;
    ExactSum sum = *this;
    sum.carry();
    int top = kNumLimbs;
    while (top > 0 && sum.words[top - 1] == 0) --top;
    if (top == 0) return 0;
    // The 64 bits from the leading one down, and whether anything lies below them: enough to round once.
    uint64_t bits = 0;
    bool below = false;
    int place = 0;  // of the lowest of the bits
    for (int i = top; i-- > 0;) {
      const uint64_t limb = static_cast<uint64_t>(sum.words[i]);
      if (i + 2 >= top) {
        bits = bits << kLimbBits | limb;
        place = i * kLimbBits;
        continue;
      }
      const int room = leading_zeros(bits);
      if (i + 3 == top && room > 0) {
        bits = bits << room | limb >> (kLimbBits - room);
        place -= room;
        below |= (limb << room & kLimbMask) != 0;
      } else {
        below |= limb != 0;
      }
    }
    const uint64_t sticky = below ? 1 : 0;
    return std::ldexp(static_cast<double>(bits | sticky), place + kLowestExponent);
  }

 private:
  static constexpr int kLimbBits = 32;
  static constexpr uint64_t kLimbMask = 0xffffffffu;

  SIXFOLD_HD static int leading_zeros(uint64_t bits) {
#ifdef __CUDA_ARCH__
    return __clzll(static_cast<long long>(bits));
#else
    return std::countl_zero(bits);
#endif
  }
};

}  // namespace sixfold::kernels
