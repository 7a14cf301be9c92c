#include <vector>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/exact_sum.h"
#include "kernels/fixed_point.h"
#include "kernels/kernel_table.h"
#include "kernels/update_rules.h"

namespace sixfold::kernels::cpu {

namespace {

double square(float x) {
  return static_cast<double>(x) * static_cast<double>(x);  // 48 bits: exact
}

/// of_piece(begin, end) of each piece of a tensor.
template <typename Sum, typename OfPiece>
std::vector<Sum> sums_of_pieces(const Context& context, int64_t count, const OfPiece& of_piece) {
  std::vector<Sum> sums(static_cast<size_t>((count + kElementsPerPiece - 1) / kElementsPerPiece));
  parallel_ranges(context.num_threads, count, kElementsPerPiece, [&](int64_t begin, int64_t end) {
    sums[static_cast<size_t>(begin / kElementsPerPiece)] = of_piece(begin, end);
  });
  return sums;
}

double sum_of_squares(const Context& context, const float* x, int64_t count) {
  double total = 0;
  for (double sum : sums_of_pieces<double>(context, count, [=](int64_t begin, int64_t end) {
         return lane_sum<double>(end - begin, [=](int64_t i) { return square(x[begin + i]); });
       })) {
    total += sum;
  }
  return total;
}

ExactSum exact_sum_of_squares(const Context& context, const float* x, int64_t count) {
  ExactSum total;
  for (const ExactSum& sum : sums_of_pieces<ExactSum>(context, count, [=](int64_t begin, int64_t end) {
         ExactSum of_piece;
         for (int64_t i = begin; i < end; ++i) of_piece.add(square(x[i]));
         return of_piece;
       })) {
    total.add(sum);
  }
  total.carry();
  return total;
}

ExactSum& checked_sum(const Tensor& sum) {
  return *reinterpret_cast<ExactSum*>(checked<int64_t>(sum, {ExactSum::kNumWords}, "sum of squares"));
}

}  // namespace

void reciprocal(Context&, const Tensor& count, const Tensor& y) {
  const int64_t n = *checked<int64_t>(count, {1}, "count");
  *checked<float>(y, {1}, "reciprocal") = n == 0 ? 0.0f : 1.0f / static_cast<float>(n);
}

void to_fixed_point(Context&, const Tensor& values, int num_ranks, const Tensor& sum) {
  const float* in = checked_elements(values, values.numel(), "values");
  double total = 0;
  for (int64_t i = 0; i < values.numel(); ++i) total += static_cast<double>(in[i]);
  const FixedPoint fixed = FixedPoint::of(total, num_ranks);
  int64_t* words = checked<int64_t>(sum, {2}, "sum in fixed point");
  words[0] = fixed.units;
  words[1] = fixed.num_invalid;
}

void add_squares(Context& context, const std::vector<Tensor>& tensors, SquareSums how, const Tensor& sum) {
  ExactSum& total = checked_sum(sum);
  for (const Tensor& tensor : tensors) {
    const int64_t count = tensor.numel();
    const float* x = checked_elements(tensor, count, "tensor to square");
    SIXFOLD_CHECK_LT(count, int64_t{1} << 31, "elements of a tensor to square");
    if (how == SquareSums::ByElement) {
      total.add(exact_sum_of_squares(context, x, count));
    } else {
      total.add(sum_of_squares(context, x, count));
    }
  }
  total.carry();
}

void clip_factor(Context&, const Tensor& sum, double max_norm, const Tensor& scale) {
  SIXFOLD_CHECK_LE(0.0, max_norm, "the norm to clip to");
  *checked<float>(scale, {1}, "scale of gradients") = clip_scale(checked_sum(sum).value(), max_norm);
}

}  // namespace sixfold::kernels::cpu
