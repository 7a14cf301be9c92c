#include "runtime/train/clip.h"

#include <cmath>

#include "runtime/train/exact_sum.h"

namespace sixfold::train {

double gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments,
                               comm::Communicator* group, NormOrder order) {
  ExactSum sum;
  for (const parallel::UpdateSegment& segment : segments) {
    if (order == NormOrder::Segments) {
      sum.add(kernels::sum_of_squares(context, segment.grad));
      continue;
    }
    const float* grad = segment.grad.data<float>();
    for (int64_t i = 0; i < segment.grad.numel(); ++i) {
      sum.add(static_cast<double>(grad[i]) * static_cast<double>(grad[i]));  // 48 bits: exact
    }
  }
  if (group != nullptr) sum.all_reduce(*group, "dp.norm");
  return sum.value();
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
