#include "runtime/train/clip.h"

#include <cmath>

#include "runtime/train/exact_sum.h"

namespace sixfold::train {

double gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments,
                               const NormGroups& groups, NormOrder order) {
  ExactSum sum;
  const bool counts_replicated = groups.tp == nullptr || groups.tp->rank() == 0;
  for (const parallel::UpdateSegment& segment : segments) {
    if (!segment.in_norm) continue;
    if (segment.replicated && !counts_replicated) continue;
    if (order == NormOrder::Segments) {
      sum.add(kernels::sum_of_squares(context, segment.grad));
      continue;
    }
    const Tensor on_host = kernels::on_host(context, segment.grad);
    const float* grad = on_host.data<float>();
    for (int64_t i = 0; i < segment.grad.numel(); ++i) {
      sum.add(static_cast<double>(grad[i]) * static_cast<double>(grad[i]));  // 48 bits: exact
    }
  }
  const kernels::Place place = context;
  if (groups.shards != nullptr) sum.all_reduce(place, *groups.shards, "dp.norm");
  if (groups.tp != nullptr) sum.all_reduce(place, *groups.tp, "tp.norm");
  if (groups.pp != nullptr) sum.all_reduce(place, *groups.pp, "pp.norm");
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
