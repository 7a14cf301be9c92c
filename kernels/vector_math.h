// exp and tanh of one element, on either device. On the CPU as plain arithmetic, so that the compiler turns loops over
// them into vector code (libm's are calls); on a GPU by its unit for powers of two.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/core/host_device.h"

namespace sixfold::kernels {

/// e^x; NaN stays NaN. CPU: within 1e-7 relative for x in [-87.3, 88.3]; 0 below, e^88.3 above. GPU: within 1e-6 for
/// |x| <= 8, 1e-5 for x in [-87.3, 88.3] (CUDA C++ Programming Guide, intrinsic functions: 2 + |1.173 x| units in the
/// last place).
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, so e^x = 2^n e^r; ln 2 is subtracted in two parts, the first of which has few
/// enough bits for n * part to be exact (Cody, Waite 1980). The polynomial is the Taylor series of e^r to r^7.
SIXFOLD_HD inline float exp_f32(float x) {
#ifdef __CUDA_ARCH__
  return __expf(x);
#else
  constexpr float kLowest = -87.3f, kHighest = 88.3f;
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the sum with it has no bits below one, and n in its lowest bits
  float y = x < kLowest ? kLowest : x;
  y = y > kHighest ? kHighest : y;
  const float rounded = y * kLog2E + kRound;
  const float n = rounded - kRound;
  const float r = (y - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(kRound) + 127;
  const float power = std::bit_cast<float>(exponent << 23);
  return x < kLowest ? 0.0f : p * power;
#endif
}

/// 2^x; 2^-inf is 0. CPU: libm's. GPU: within 2 units in the last place, results below 2^-126 are 0 (PTX ISA,
/// ex2.approx.ftz).
SIXFOLD_HD inline float exp2_f32(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// tanh(x) = 1 - 2 / (e^2x + 1), within 3e-7 absolute; used where it is added to 1.
SIXFOLD_HD inline float tanh_f32(float x) {
  return 1.0f - 2.0f / (exp_f32(2.0f * x) + 1.0f);
}

}  // namespace sixfold::kernels
