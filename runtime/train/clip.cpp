#include "runtime/train/clip.h"

#include <cmath>

namespace sixfold::train {

double gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments) {
  double sum = 0;
  for (const parallel::UpdateSegment& segment : segments) sum += kernels::sum_of_squares(context, segment.grad);
  return sum;
}

Clip clip_factor(double sum_of_squares, double max_norm) {
  SIXFOLD_CHECK_LE(0.0, max_norm, "the norm to clip to");
  Clip clip;
  clip.norm = std::sqrt(sum_of_squares);
  clip.finite = std::isfinite(sum_of_squares);
  if (clip.finite && max_norm > 0 && clip.norm > max_norm) clip.scale = static_cast<float>(max_norm / clip.norm);
  return clip;
}

}  // namespace sixfold::train
