#include <vector>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"
#include "kernels/update_rules.h"

namespace sixfold::kernels::cpu {

void adamw_update(Context& context, const AdamWParams& params, const Tensor& g, const Tensor& w, const Tensor& m,
                  const Tensor& v, const Tensor& rounded) {
  const float* gradient = checked_elements(g, w.numel(), "adamw g");
  float* weight = checked_elements(w, w.numel(), "adamw w");
  float* first = checked_elements(m, w.numel(), "adamw m");
  float* second = checked_elements(v, w.numel(), "adamw v");
  const AdamWRule rule(params);
  parallel_ranges(context.num_threads, w.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rule.update(gradient[i], weight[i], first[i], second[i]);
  });
  if (rounded.defined()) cpu::convert(context, w, rounded);
}

void sgd_update(Context& context, float lr, float gradient_scale, float weight_decay, const Tensor& g, const Tensor& w,
                const Tensor& rounded) {
  const float* gradient = checked_elements(g, w.numel(), "sgd g");
  float* weight = checked_elements(w, w.numel(), "sgd w");
  const SgdRule rule(lr, gradient_scale, weight_decay);
  parallel_ranges(context.num_threads, w.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rule.update(gradient[i], weight[i]);
  });
  if (rounded.defined()) cpu::convert(context, w, rounded);
}

namespace {

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

}  // namespace

std::vector<double> sums_of_squares(Context& context, const std::vector<Tensor>& tensors) {
  std::vector<double> sums;
  for (const Tensor& tensor : tensors) sums.push_back(sum_of_squares(context, tensor));
  return sums;
}

}  // namespace sixfold::kernels::cpu
