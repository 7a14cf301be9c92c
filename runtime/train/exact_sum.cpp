#include "runtime/train/exact_sum.h"

#include <cmath>
#include <limits>

#include "runtime/train/host_sum.h"

namespace sixfold::train {

namespace {
constexpr int kLimbBits = 32;
constexpr uint64_t kLimbMask = 0xffffffffu;
constexpr int kMantissaBits = 53;
}  // namespace

void ExactSum::add(double value) {
  if (!std::isfinite(value)) {
    ++limbs_[kNumLimbs];
    return;
  }
  SIXFOLD_CHECK_LE(0.0, value, "an addend");
  if (value == 0) return;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // value = mantissa 2^exponent, 0.5 <= mantissa < 1
  uint64_t bits = static_cast<uint64_t>(std::ldexp(mantissa, kMantissaBits));
  int place = exponent - kMantissaBits - kLowestExponent;  // of the lowest bit
  if (place < 0) {                                         // the bits below are 0
    bits >>= -place;
    place = 0;
  }
  const size_t limb = static_cast<size_t>(place / kLimbBits);
  const int shift = place % kLimbBits;
  SIXFOLD_CHECK_LT(limb + 2, kNumLimbs, "a value beyond the range of the sum");
  // 53 bits, shifted by less than 32, are in three limbs.
  const uint64_t low = (bits & kLimbMask) << shift, high = (bits >> kLimbBits) << shift;
  const uint64_t middle = (low >> kLimbBits) + (high & kLimbMask);
  limbs_[limb] += static_cast<int64_t>(low & kLimbMask);
  limbs_[limb + 1] += static_cast<int64_t>(middle & kLimbMask);
  limbs_[limb + 2] += static_cast<int64_t>((middle >> kLimbBits) + (high >> kLimbBits));
  if (++num_pending_ == kMaxPending) carry();
}

void ExactSum::carry() {
  for (size_t i = 0; i + 1 < kNumLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> kLimbBits;
    limbs_[i] &= static_cast<int64_t>(kLimbMask);
  }
  num_pending_ = 0;
}

void ExactSum::all_reduce(const kernels::Place& place, comm::Communicator& group, const std::string& tag) {
  carry();
  HostSum sum;
  sum.start(place, group, limbs_, tag);
  sum.wait();
}

double ExactSum::value() const {
  if (limbs_[kNumLimbs] > 0) return std::numeric_limits<double>::quiet_NaN();
  ExactSum sum = *this;
  sum.carry();
  size_t top = kNumLimbs;
  while (top > 0 && sum.limbs_[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The 64 bits from the leading one down, and whether anything lies below them: enough to round once.
  uint64_t bits = 0;
  bool below = false;
  int place = 0;  // of the lowest of the bits
  for (size_t i = top; i-- > 0;) {
    const uint64_t limb = static_cast<uint64_t>(sum.limbs_[i]);
    if (i + 2 >= top) {
      bits = bits << kLimbBits | limb;
      place = static_cast<int>(i) * kLimbBits;
      continue;
    }
    const int room = __builtin_clzll(bits);
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

}  // namespace sixfold::train
