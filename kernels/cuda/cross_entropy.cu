// The classifier: logits are read once for the loss, and read and written once for their gradient.
#include "kernels/cross_entropy.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"

namespace sixfold::kernels::cuda {

namespace {

/// Each lane keeps the maximum of what it has seen and the sum of exponentials relative to it; a larger logit rescales
/// the sum. Source: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3.
template <typename T, int pack>
struct Statistics {
  const T* logits;
  const int32_t* targets;
  int64_t columns, num_real, vocab_begin;
  float* row_max;
  float* stats;

  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t r) const {
    const T* row = logits + r * columns;
    const int64_t in_packs = num_real / pack * pack;
    float largest = -INFINITY, sum = 0;
    for_channels<pack>(lanes, in_packs, [&](int64_t c) { absorb<pack>(row + c, largest, sum); });
    for_channels<1>(lanes, num_real - in_packs, [&](int64_t i) { absorb<1>(row + in_packs + i, largest, sum); });
    const float of_row = lanes.max(largest);
    const float of_all = lanes.sum(sum * rescale_factor(largest, of_row));
    if (lanes.index() != 0) return;
    row_max[r] = of_row;
    stats[2 * r] = of_all;
    const int64_t column = targets[r] - vocab_begin;
    stats[2 * r + 1] = targets[r] >= 0 && column >= 0 && column < num_real ? static_cast<float>(row[column]) : 0.0f;
  }

 private:
  template <int n>
  SIXFOLD_DEVICE static void absorb(const T* logit, float& largest, float& sum) {
    float values[n];
    load(logit, values);
    float m = largest;
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) m = values[k] > m ? values[k] : m;
    sum *= rescale_factor(largest, m);
    largest = m;
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) sum += exp_f32(values[k] - subtracted(m));
  }
};

struct Rescale {
  const float* own_max;
  const float* row_max;
  float* stats;
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t r) const {
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) stats[2 * (r + k)] *= rescale_factor(own_max[r + k], row_max[r + k]);
  }
};

/// One block for all rows, so that the order of additions is one.
struct Loss {
  const int32_t* targets;
  const float* row_max;
  const float* stats;
  int64_t num_rows;
  float* loss;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t) const {
    double sum = 0;
    for_channels<1>(lanes, num_rows, [&](int64_t r) {
      const double of_row = row_loss(row_max[r], stats[2 * r], stats[2 * r + 1]);
      sum += targets[r] < 0 ? 0.0 : of_row;
    });
    const double total = lanes.sum(sum);
    if (lanes.index() == 0) *loss = static_cast<float>(total);
  }
};

template <typename T, int pack>
struct Backward {
  const int32_t* targets;
  const float* row_max;
  const float* stats;
  int64_t columns, num_real, vocab_begin;
  const float* scale;
  T* logits;

  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t r) const {
    T* row = logits + r * columns;
    const int64_t num_nonzero = targets[r] < 0 ? 0 : num_real, in_packs = num_nonzero / pack * pack;
    const int64_t target = targets[r] - vocab_begin;
    const float m = row_max[r], factor = *scale / stats[2 * r];
    for_channels<pack>(lanes, in_packs, [&](int64_t c) { gradient<pack>(row + c, m, factor, target - c); });
    for_channels<1>(lanes, columns - in_packs, [&](int64_t i) {
      const int64_t c = in_packs + i;
      if (c < num_nonzero) {
        gradient<1>(row + c, m, factor, target - c);
      } else {
        row[c] = T(0.0f);
      }
    });
  }

 private:
  /// Of n logits, number `target` of which is the target's.
  template <int n>
  SIXFOLD_DEVICE void gradient(T* logit, float m, float factor, int64_t target) const {
    float values[n];
    load(logit, values);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) values[k] = exp_f32(values[k] - m) * factor;
    if (target >= 0 && target < n) {
      SIXFOLD_UNROLL
      for (int k = 0; k < n; ++k) values[k] -= k == target ? *scale : 0.0f;
    }
    store(logit, values);
  }
};

}  // namespace

void cross_entropy_statistics(Context& context, const Tensor& logits, const Tensor& targets, int64_t vocab_begin,
                              int64_t vocab_size, const Tensor& row_max, const Tensor& stats) {
  const int64_t rows = checked_dim(logits, 2, 0, "logits"), columns = logits.dim(1);
  const int64_t real = num_real_columns(columns, vocab_begin, vocab_size);
  const int32_t* target = checked<int32_t>(targets, {rows}, "targets");
  float* maxima = checked<float>(row_max, {rows}, "row_max");
  float* out = checked<float>(stats, {rows, 2}, "stats");
  dispatch_float(logits.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* in = checked<T>(logits, {rows, columns}, "logits");
    with_wide_packs<T>(columns, {in}, [&]<int pack>() {
      for_each_row<RowBy::Block>(context, rows,
                                 Statistics<T, pack>{in, target, columns, real, vocab_begin, maxima, out});
    });
  });
}

void cross_entropy_rescale(Context& context, const Tensor& own_max, const Tensor& row_max, const Tensor& stats) {
  const int64_t rows = checked_dim(stats, 2, 0, "stats");
  const Rescale f{checked<float>(own_max, {rows}, "own_max"), checked<float>(row_max, {rows}, "row_max"),
                  checked<float>(stats, {rows, 2}, "stats")};
  for_each_element(context, rows, {f.own_max, f.row_max, f.stats}, f);
}

void cross_entropy_loss(Context& context, const Tensor& targets, const Tensor& row_max, const Tensor& stats,
                        const Tensor& loss) {
  const int64_t rows = checked_dim(stats, 2, 0, "stats");
  for_each_row<RowBy::Block>(
      context, 1,
      Loss{checked<int32_t>(targets, {rows}, "targets"), checked<float>(row_max, {rows}, "row_max"),
           checked<float>(stats, {rows, 2}, "stats"), rows, checked<float>(loss, {1}, "loss")});
}

void cross_entropy_backward(Context& context, const Tensor& targets, int64_t vocab_begin, int64_t vocab_size,
                            const Tensor& row_max, const Tensor& stats, const Tensor& scale, const Tensor& logits) {
  const int64_t rows = checked_dim(logits, 2, 0, "logits"), columns = logits.dim(1);
  const int64_t real = num_real_columns(columns, vocab_begin, vocab_size);
  const int32_t* target = checked<int32_t>(targets, {rows}, "targets");
  const float* maxima = checked<float>(row_max, {rows}, "row_max");
  const float* sums = checked<float>(stats, {rows, 2}, "stats");
  const float* of_all = checked<float>(scale, {1}, "scale");
  dispatch_float(logits.dtype(), [&](auto element) {
    using T = decltype(element);
    T* inout = checked<T>(logits, {rows, columns}, "logits");
    with_wide_packs<T>(columns, {inout}, [&]<int pack>() {
      for_each_row<RowBy::Block>(context, rows,
                                 Backward<T, pack>{target, maxima, sums, columns, real, vocab_begin, of_all, inout});
    });
  });
}

}  // namespace sixfold::kernels::cuda
