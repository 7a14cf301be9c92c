// How optimizers change one element, on either device. Their constants are worked out once an update, on the CPU.
#pragma once

#include <cmath>

#include "kernels/kernels.h"

namespace sixfold::kernels {

/// AdamW: see adamw_update in kernels.h.
struct AdamWRule {
  float beta1, beta2, eps, gradient_scale;
  float step_size, second_factor, decay;

  /// Throws CheckError for a step below 1.
  explicit AdamWRule(const AdamWParams& params)
      : beta1(params.beta1), beta2(params.beta2), eps(params.eps), gradient_scale(params.gradient_scale) {
    SIXFOLD_CHECK_LE(int64_t{1}, params.step, "adamw steps count from 1");
    // The corrections of the first steps are differences of nearly equal numbers: in double.
    const double step = static_cast<double>(params.step);
    const double correction1 = 1.0 - std::pow(static_cast<double>(beta1), step);
    const double correction2 = 1.0 - std::pow(static_cast<double>(beta2), step);
    step_size = static_cast<float>(static_cast<double>(params.lr) / correction1);
    second_factor = static_cast<float>(1.0 / std::sqrt(correction2));
    decay = 1.0f - params.lr * params.weight_decay;
  }

  SIXFOLD_HD void update(float gradient, float& weight, float& first, float& second) const {
    const float g = gradient * gradient_scale;
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

  SgdRule(float lr, float gradient_scale, float weight_decay) : rate(lr * gradient_scale), decay(lr * weight_decay) {}

  SIXFOLD_HD void update(float gradient, float& weight) const { weight -= rate * gradient + decay * weight; }
};

}  // namespace sixfold::kernels
