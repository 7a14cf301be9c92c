#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"
#include "kernels/update_rules.h"

namespace sixfold::kernels::cpu {

namespace {

float scale_of(const Tensor& scale) {
  return scale.defined() ? *checked<float>(scale, {1}, "scale of gradients") : 1.0f;
}

}  // namespace

void adamw_update(Context& context, const AdamWParams& params, const Tensor& scale, const Tensor& g, const Tensor& w,
                  const Tensor& m, const Tensor& v, const Tensor& rounded) {
  const float* gradient = checked_elements(g, w.numel(), "adamw g");
  float* weight = checked_elements(w, w.numel(), "adamw w");
  float* first = checked_elements(m, w.numel(), "adamw m");
  float* second = checked_elements(v, w.numel(), "adamw v");
  const AdamWRule rule(params);
  const float factor = scale_of(scale);
  if (std::isnan(factor)) return;
  parallel_ranges(context.num_threads, w.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rule.update(gradient[i] * factor, weight[i], first[i], second[i]);
  });
  if (rounded.defined()) cpu::convert(context, w, rounded);
}

void sgd_update(Context& context, float lr, float weight_decay, const Tensor& scale, const Tensor& g, const Tensor& w,
                const Tensor& rounded) {
  const float* gradient = checked_elements(g, w.numel(), "sgd g");
  float* weight = checked_elements(w, w.numel(), "sgd w");
  const SgdRule rule(lr, weight_decay);
  const float factor = scale_of(scale);
  if (std::isnan(factor)) return;
  parallel_ranges(context.num_threads, w.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rule.update(gradient[i] * factor, weight[i]);
  });
  if (rounded.defined()) cpu::convert(context, w, rounded);
}

}  // namespace sixfold::kernels::cpu
