#include "runtime/train/clip.h"

#include <cmath>

#include "runtime/train/exact_sum.h"

namespace sixfold::train {

double gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments,
                               const NormGroups& groups, NormOrder order) {
  ExactSum sum;
  const bool counts_replicated = groups.tp == nullptr || groups.tp->rank() == 0;
  std::vector<Tensor> grads;
  for (const parallel::UpdateSegment& segment : segments) {
    if (segment.in_norm && (counts_replicated || !segment.replicated)) grads.push_back(segment.grad);
  }
  if (order == NormOrder::Segments) {
    for (double of_segment : kernels::sums_of_squares(context, grads)) sum.add(of_segment);
  } else {
    for (const Tensor& grad : grads) {
      const Tensor on_host = kernels::on_host(context, grad);
      const float* values = on_host.data<float>();
      for (int64_t i = 0; i < grad.numel(); ++i) {
        sum.add(static_cast<double>(values[i]) * static_cast<double>(values[i]));  // 48 bits: exact
      }
    }
  }
  if (groups.shards != nullptr) sum.all_reduce(context, *groups.shards, "dp.norm");
  if (groups.tp != nullptr) sum.all_reduce(context, *groups.tp, "tp.norm");
  if (groups.pp != nullptr) sum.all_reduce(context, *groups.pp, "pp.norm");
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
