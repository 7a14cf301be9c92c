#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cpu {

void cross_entropy_statistics(Context& context, const Tensor& logits, const Tensor& targets, int64_t vocab_begin,
                              int64_t vocab_size, const Tensor& row_max, const Tensor& stats) {
  const int64_t rows = checked_dim(logits, 2, 0, "logits"), columns = logits.dim(1);
  const int64_t real = num_real_columns(columns, vocab_begin, vocab_size);
  const float* in = checked<float>(logits, {rows, columns}, "logits");
  const int32_t* target = checked<int32_t>(targets, {rows}, "targets");
  float* maxima = checked<float>(row_max, {rows}, "row_max");
  float* out = checked<float>(stats, {rows, 2}, "stats");
  for (int64_t r = 0; r < rows; ++r) SIXFOLD_CHECK_LT(target[r], vocab_size, "target is not in the vocabulary");
  parallel_ranges(context.num_threads, rows, rows_per_piece(columns), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = in + r * columns;
      maxima[r] = lane_reduce(
          real, -std::numeric_limits<float>::infinity(), [=](int64_t c) { return row[c]; },
          [](float a, float b) { return a < b ? b : a; });
      const float m = subtracted(maxima[r]);
      const int64_t column = target[r] - vocab_begin;
      out[2 * r] = lane_sum(real, [=](int64_t c) { return exp_f32(row[c] - m); });
      out[2 * r + 1] = target[r] >= 0 && column >= 0 && column < real ? row[column] : 0.0f;
    }
  });
}

void cross_entropy_rescale(Context&, const Tensor& own_max, const Tensor& row_max, const Tensor& stats) {
  const int64_t rows = checked_dim(stats, 2, 0, "stats");
  const float* own = checked<float>(own_max, {rows}, "own_max");
  const float* maxima = checked<float>(row_max, {rows}, "row_max");
  float* sums = checked<float>(stats, {rows, 2}, "stats");
  for (int64_t r = 0; r < rows; ++r) sums[2 * r] *= rescale_factor(own[r], maxima[r]);
}

void cross_entropy_loss(Context&, const Tensor& targets, const Tensor& row_max, const Tensor& stats,
                        const Tensor& loss) {
  const int64_t rows = checked_dim(stats, 2, 0, "stats");
  const int32_t* target = checked<int32_t>(targets, {rows}, "targets");
  const float* maxima = checked<float>(row_max, {rows}, "row_max");
  const float* in = checked<float>(stats, {rows, 2}, "stats");
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r)
    if (target[r] >= 0) sum += row_loss(maxima[r], in[2 * r], in[2 * r + 1]);
  *checked<float>(loss, {1}, "loss") = static_cast<float>(sum);
}

void cross_entropy_backward(Context& context, const Tensor& targets, int64_t vocab_begin, int64_t vocab_size,
                            const Tensor& row_max, const Tensor& stats, const Tensor& scale, const Tensor& logits) {
  const int64_t rows = checked_dim(logits, 2, 0, "logits"), columns = logits.dim(1);
  const int64_t real = num_real_columns(columns, vocab_begin, vocab_size);
  const int32_t* target = checked<int32_t>(targets, {rows}, "targets");
  const float* maxima = checked<float>(row_max, {rows}, "row_max");
  const float* sums = checked<float>(stats, {rows, 2}, "stats");
  const float factor_of_all = *checked<float>(scale, {1}, "scale");
  float* inout = logits.data<float>();
  parallel_ranges(context.num_threads, rows, rows_per_piece(columns), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = inout + r * columns;
      const int64_t num_nonzero = target[r] < 0 ? 0 : real;
      const float m = maxima[r], factor = factor_of_all / sums[2 * r];
      for (int64_t c = 0; c < num_nonzero; ++c) row[c] = exp_f32(row[c] - m) * factor;
      std::fill(row + num_nonzero, row + columns, 0.0f);
      const int64_t column = target[r] - vocab_begin;
      if (column >= 0 && column < num_nonzero) row[column] -= factor_of_all;
    }
  });
}

}  // namespace sixfold::kernels::cpu
