// How gradients are clipped and optimizers change one element, on either device. Constants are worked out once an
// update, on the CPU.
#pragma once

#include <cmath>

#include "kernels/kernels.h"

namespace sixfold::kernels {

/// What gradients are multiplied by whose squares add up to `sum_of_squares`: min(1, max_norm / norm), so that the
/// clipped norm is max_norm itself (PyTorch adds 1e-6 to the denominator, but 0 / 0 cannot arise here); 1 where
/// max_norm is 0. NaN where the sum is not finite: no update can be made of them.
/// Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013, algorithm 1.
SIXFOLD_HD inline float clip_scale(double sum_of_squares, double max_norm) {
  if (!std::isfinite(sum_of_squares)) return NAN;
  const double norm = std::sqrt(sum_of_squares);
  return max_norm > 0 && norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

/// AdamW: see adamw_update in kernels.h.
struct AdamWRule {
  float beta1, beta2, eps;
  float step_size, second_factor, decay;

  /// Throws CheckError for a step below 1.
  explicit AdamWRule(const AdamWParams& params) : beta1(params.beta1), beta2(params.beta2), eps(params.eps) {
    SIXFOLD_CHECK_LE(int64_t{1}, params.step, "adamw steps count from 1");
    // The corrections of the first steps are differences of nearly equal numbers: in double.
    const double step = static_cast<double>(params.step);
    const double correction1 = 1.0 - std::pow(static_cast<double>(beta1), step);
    const double correction2 = 1.0 - std::pow(static_cast<double>(beta2), step);
    step_size = static_cast<float>(static_cast<double>(params.lr) / correction1);
    second_factor = static_cast<float>(1.0 / std::sqrt(correction2));
    decay = 1.0f - params.lr * params.weight_decay;
  }

  /// g: the gradient, scaled.
  SIXFOLD_HD void update(float g, float& weight, float& first, float& second) const {
    const float m = beta1 * first + (1.0f - beta1) * g;
    const float v = beta2 * second + (1.0f - beta2) * g * g;
    first = m;
    second = v;
    weight = weight * decay - step_size * m / (std::sqrt(v) * second_factor + eps);
  }
};

/// Plain gradient descent: see sgd_update in kernels.h.
struct SgdRule {
  float rate, decay;

  SgdRule(float lr, float weight_decay) : rate(lr), decay(lr * weight_decay) {}

  /// g: the gradient, scaled.
  SIXFOLD_HD void update(float g, float& weight) const { weight -= rate * g + decay * weight; }
};

}  // namespace sixfold::kernels
