#include <cmath>
#include <vector>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cpu {

void adamw_update(Context& context, const AdamWParams& params, const Tensor& g, const Tensor& w, const Tensor& m,
                  const Tensor& v, const Tensor& rounded) {
  const float* gradient = checked_elements(g, w.numel(), "adamw g");
  float* weight = checked_elements(w, w.numel(), "adamw w");
  float* first = checked_elements(m, w.numel(), "adamw m");
  float* second = checked_elements(v, w.numel(), "adamw v");
  SIXFOLD_CHECK_LE(int64_t{1}, params.step, "adamw steps count from 1");
  // The corrections of the first steps are differences of nearly equal numbers: in double.
  const double step = static_cast<double>(params.step);
  const double correction1 = 1.0 - std::pow(static_cast<double>(params.beta1), step);
  const double correction2 = 1.0 - std::pow(static_cast<double>(params.beta2), step);
  const float step_size = static_cast<float>(static_cast<double>(params.lr) / correction1);
  const float second_factor = static_cast<float>(1.0 / std::sqrt(correction2));
  const float decay = 1.0f - params.lr * params.weight_decay;
  const float beta1 = params.beta1, beta2 = params.beta2, eps = params.eps, scale = params.gradient_scale;
  parallel_ranges(context.num_threads, w.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float gi = gradient[i] * scale;
      const float mi = beta1 * first[i] + (1.0f - beta1) * gi;
      const float vi = beta2 * second[i] + (1.0f - beta2) * gi * gi;
      first[i] = mi;
      second[i] = vi;
      weight[i] = weight[i] * decay - step_size * mi / (std::sqrt(vi) * second_factor + eps);
    }
  });
  if (rounded.defined()) cpu::convert(context, w, rounded);
}

void sgd_update(Context& context, float lr, float gradient_scale, float weight_decay, const Tensor& g, const Tensor& w,
                const Tensor& rounded) {
  const float* gradient = checked_elements(g, w.numel(), "sgd g");
  float* weight = checked_elements(w, w.numel(), "sgd w");
  const float decay = lr * weight_decay, rate = lr * gradient_scale;
  parallel_ranges(context.num_threads, w.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) weight[i] -= rate * gradient[i] + decay * weight[i];
  });
  if (rounded.defined()) cpu::convert(context, w, rounded);
}

double sum_of_squares(Context& context, const Tensor& x) {
  const float* in = checked_elements(x, x.numel(), "sum_of_squares x");
  std::vector<double> partial(static_cast<size_t>((x.numel() + kElementsPerPiece - 1) / kElementsPerPiece));
  parallel_ranges(context.num_threads, x.numel(), kElementsPerPiece, [&](int64_t begin, int64_t end) {
    partial[static_cast<size_t>(begin / kElementsPerPiece)] = lane_sum<double>(end - begin, [=](int64_t i) {
      return static_cast<double>(in[begin + i]) * static_cast<double>(in[begin + i]);
    });
  });
  double total = 0;
  for (double p : partial) total += p;
  return total;
}

}  // namespace sixfold::kernels::cpu
