// GPT-2's GELU of one element, on either device.
#pragma once

#include "kernels/vector_math.h"

namespace sixfold::kernels {

inline constexpr float kSqrt2OverPi = 0.7978845608f, kGeluCubic = 0.044715f;

SIXFOLD_HD inline float gelu(float x) {
  const float t = tanh_f32(kSqrt2OverPi * (x + kGeluCubic * x * x * x));
  return 0.5f * x * (1.0f + t);
}

// d/dx of 0.5 x (1 + t) with t = tanh(u): 0.5 (1 + t) + 0.5 x (1 - t^2) u'.
SIXFOLD_HD inline float gelu_derivative(float x) {
  const float t = tanh_f32(kSqrt2OverPi * (x + kGeluCubic * x * x * x));
  const float du = kSqrt2OverPi * (1.0f + 3.0f * kGeluCubic * x * x);
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * du;
}

}  // namespace sixfold::kernels
