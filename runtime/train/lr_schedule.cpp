#include "runtime/train/lr_schedule.h"

#include <cmath>
#include <numbers>

namespace sixfold::train {

float learning_rate(const LrSchedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    return static_cast<float>(schedule.peak * static_cast<double>(step + 1) /
                              static_cast<double>(schedule.warmup_steps));
  }
  const int64_t last = schedule.num_steps - 1;
  if (step > last) return schedule.floor;
  if (last <= schedule.warmup_steps) return schedule.peak;  // a single step is left for the decay: its start
  const double done =
      static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(last - schedule.warmup_steps);
  const double weight = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return static_cast<float>(schedule.floor + weight * (static_cast<double>(schedule.peak) - schedule.floor));
}

}  // namespace sixfold::train
