// LayerNorm of one element, on either device. Of a row: m its mean, s = 1 / sqrt(variance + eps).
#pragma once

#include <cmath>

#include "runtime/core/host_device.h"

namespace sixfold::kernels {

SIXFOLD_HD inline float reciprocal_deviation(float variance, float eps) {
  return 1.0f / std::sqrt(variance + eps);
}

SIXFOLD_HD inline float normalized(float x, float m, float s) {
  return (x - m) * s;
}

/// The gradient of x: with n = normalized(x) and g = dy gamma, dx = s (g - average(g) - n average(g n)).
SIXFOLD_HD inline float layernorm_gradient(float g, float average_g, float n, float average_gn, float s) {
  return s * (g - average_g - n * average_gn);
}

}  // namespace sixfold::kernels
