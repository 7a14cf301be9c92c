// Learning rate as a function of the step: linear warm-up, then cosine decay.
#pragma once

#include <cstdint>

namespace sixfold::train {

struct LrSchedule {
  float peak = 1e-3f;
  float floor = 1e-4f;
  int64_t warmup_steps = 0;
  int64_t num_steps = 1;  // steps of the whole run
};

/// The rate of step `step`, counted from 0: peak * (step + 1) / warmup_steps during warm-up, so that no step is wasted
/// on a rate of zero; then half a cosine from peak (at step == warmup_steps) to floor (at the last step), and floor
/// beyond. Source: Loshchilov, Hutter, "SGDR", 2017, equation 5, without restarts.
float learning_rate(const LrSchedule& schedule, int64_t step);

}  // namespace sixfold::train
