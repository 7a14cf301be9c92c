#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/update_rules.h"

namespace sixfold::kernels::cuda {

namespace {

struct AdamW {
  AdamWRule rule;
  const float* gradient;
  float* weight;
  float* first;
  float* second;
  BF16* rounded;  // nullptr: not wanted
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    float g[n], w[n], m[n], v[n];
    load(gradient + i, g);
    load(weight + i, w);
    load(first + i, m);
    load(second + i, v);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) rule.update(g[k], w[k], m[k], v[k]);
    store(weight + i, w);
    store(first + i, m);
    store(second + i, v);
    if (rounded != nullptr) store(rounded + i, w);
  }
};

struct Sgd {
  SgdRule rule;
  const float* gradient;
  float* weight;
  BF16* rounded;  // nullptr: not wanted
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    float g[n], w[n];
    load(gradient + i, g);
    load(weight + i, w);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) rule.update(g[k], w[k]);
    store(weight + i, w);
    if (rounded != nullptr) store(rounded + i, w);
  }
};

BF16* checked_rounded(const Tensor& rounded, int64_t num_elements) {
  return rounded.defined() ? checked_elements<BF16>(rounded, num_elements, "rounded weights") : nullptr;
}

/// Elements that a block squares and adds: 16 packs a thread.
inline constexpr int64_t kElementsPerSum = 64 * kBlockThreads;

/// sums[piece] = sum of squares of a piece. A lane takes kPack neighbours at a time whether or not it can load them at
/// once (n is kPack, or 1): the order of additions is the same at any address.
template <int n>
struct SquaresOfPieces {
  const float* x;
  int64_t count;
  double* sums;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t piece) const {
    const int64_t begin = piece * kElementsPerSum;
    const int64_t length = count - begin < kElementsPerSum ? count - begin : kElementsPerSum;
    double sum = 0;
    for_channels<kPack>(lanes, length, [&](int64_t i) {
      float values[kPack] = {};
      read(begin + i, values);
      SIXFOLD_UNROLL
      for (int k = 0; k < kPack; ++k) sum += static_cast<double>(values[k]) * static_cast<double>(values[k]);
    });
    sum = lanes.sum(sum);
    if (lanes.index() == 0) sums[piece] = sum;
  }

 private:
  SIXFOLD_DEVICE void read(int64_t i, float (&values)[kPack]) const {
    if (n == kPack && i + kPack <= count) {
      load(x + i, values);
    } else {
      SIXFOLD_UNROLL
      for (int k = 0; k < kPack; ++k) values[k] = i + k < count ? x[i + k] : 0.0f;
    }
  }
};

struct SumOfSums {
  const double* sums;
  int64_t count;
  double* total;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t) const {
    double sum = 0;
    for_channels<1>(lanes, count, [&](int64_t i) { sum += sums[i]; });
    sum = lanes.sum(sum);
    if (lanes.index() == 0) *total = sum;
  }
};

}  // namespace

void adamw_update(Context& context, const AdamWParams& params, const Tensor& g, const Tensor& w, const Tensor& m,
                  const Tensor& v, const Tensor& rounded) {
  const int64_t count = w.numel();
  const AdamW f{AdamWRule(params),
                checked_elements<float>(g, count, "adamw g"),
                checked_elements<float>(w, count, "adamw w"),
                checked_elements<float>(m, count, "adamw m"),
                checked_elements<float>(v, count, "adamw v"),
                checked_rounded(rounded, count)};
  for_each_element(context, count, {f.gradient, f.weight, f.first, f.second, f.rounded}, f);
}

void sgd_update(Context& context, float lr, float gradient_scale, float weight_decay, const Tensor& g, const Tensor& w,
                const Tensor& rounded) {
  const int64_t count = w.numel();
  const Sgd f{SgdRule(lr, gradient_scale, weight_decay), checked_elements<float>(g, count, "sgd g"),
              checked_elements<float>(w, count, "sgd w"), checked_rounded(rounded, count)};
  for_each_element(context, count, {f.gradient, f.weight, f.rounded}, f);
}

namespace {

int64_t num_pieces(const Tensor& x) {
  return (x.numel() + kElementsPerSum - 1) / kElementsPerSum;
}

/// `pieces`: [num_pieces(x)], used up.
void start_sum(Context& context, const Tensor& x, double* pieces, double* total) {
  const int64_t count = x.numel();
  const float* in = checked_elements<float>(x, count, "sums_of_squares");
  if (takes_packs(0, {in})) {
    for_each_row<RowBy::Block>(context, num_pieces(x), SquaresOfPieces<kPack>{in, count, pieces});
  } else {
    for_each_row<RowBy::Block>(context, num_pieces(x), SquaresOfPieces<1>{in, count, pieces});
  }
  for_each_row<RowBy::Block>(context, 1, SumOfSums{pieces, num_pieces(x), total});
}

}  // namespace

std::vector<double> sums_of_squares(Context& context, const std::vector<Tensor>& tensors) {
  std::vector<double> sums(tensors.size());
  int64_t most_pieces = 0;
  for (const Tensor& x : tensors) most_pieces = std::max(most_pieces, num_pieces(x));
  const auto block =
      context.memory.allocate((sums.size() + static_cast<size_t>(most_pieces)) * sizeof(double), Category::Activations);
  double* const totals = static_cast<double*>(block.get());
  double* const pieces = totals + sums.size();  // of one tensor after the other
  for (size_t i = 0; i < tensors.size(); ++i) start_sum(context, tensors[i], pieces, totals + i);
  if (!sums.empty()) context.queue->to_host(sums.data(), totals, sums.size() * sizeof(double));
  return sums;
}

}  // namespace sixfold::kernels::cuda
