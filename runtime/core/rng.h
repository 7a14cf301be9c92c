// Philox4x32-10, a counter-based generator: a pure function from (key, counter) to 128 random bits, so a value depends
// on what it is for and never on who draws it or in which order.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3 and table 2.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "runtime/core/host_device.h"

namespace sixfold {

struct PhiloxKey {
  uint32_t lo = 0, hi = 0;
};
using PhiloxBlock = std::array<uint32_t, 4>;

SIXFOLD_HD inline PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t p1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key.lo, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key.hi, static_cast<uint32_t>(p0)};
    key.lo += kWeyl0;
    key.hi += kWeyl1;
  }
  return counter;
}

/// 64 well-mixed bits of a 64-bit word (Philox of it under key `seed`); for deriving keys from ids.
SIXFOLD_HD inline uint64_t philox_hash(uint64_t seed, uint64_t word) {
  const PhiloxBlock b = philox({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                               {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32), 0x68617368u, 0});
  return (uint64_t{b[1]} << 32) | b[0];
}

/// Uniform in [0, 1), from the upper 24 bits: every value is an f32 exactly.
SIXFOLD_HD inline float uniform_float(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

/// Two independent standard normal values from two words (Box-Muller).
inline std::array<double, 2> normal_pair(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;  // (0, 1]
  const double angle = static_cast<double>(b) * 0x1p-32 * 6.283185307179586;
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace sixfold
