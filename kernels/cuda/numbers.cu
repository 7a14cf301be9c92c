#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/exact_sum.h"
#include "kernels/fixed_point.h"
#include "kernels/update_rules.h"

namespace sixfold::kernels::cuda {

namespace {

SIXFOLD_DEVICE double square(float x) {
  return static_cast<double>(x) * static_cast<double>(x);  // 48 bits: exact
}

/// Elements that a block squares and adds: 16 packs a thread.
inline constexpr int64_t kElementsPerSum = 64 * kBlockThreads;

/// Of `count`, those of the piece that begins at element `begin`.
SIXFOLD_DEVICE int64_t piece_length(int64_t begin, int64_t count) {
  return count - begin < kElementsPerSum ? count - begin : kElementsPerSum;
}

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
    double sum = 0;
    for_channels<kPack>(lanes, piece_length(begin, count), [&](int64_t i) {
      float values[kPack] = {};
      read(begin + i, values);
      SIXFOLD_UNROLL
      for (int k = 0; k < kPack; ++k) sum += square(values[k]);
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

/// pieces[piece] = the exact sum of a piece. Its lanes have sums of their own, words in local memory.
struct ExactSumsOfPieces {
  const float* x;
  int64_t count;
  ExactSum* pieces;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t piece) const {
    const int64_t begin = piece * kElementsPerSum;
    ExactSum sum;
    for_channels<1>(lanes, piece_length(begin, count), [&](int64_t i) { sum.add(square(x[begin + i])); });
    for (int word = 0; word < ExactSum::kNumWords; ++word) {
      const int64_t of_piece = lanes.sum(sum.words[word]);
      if (lanes.index() == 0) pieces[piece].words[word] = of_piece;
    }
  }
};

/// One word of the total += that of all pieces.
struct AddPieces {
  const ExactSum* pieces;
  int64_t count;
  ExactSum* total;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t word) const {
    int64_t sum = 0;
    for_channels<1>(lanes, count, [&](int64_t i) { sum += pieces[i].words[word]; });
    sum = lanes.sum(sum);
    if (lanes.index() == 0) total->words[word] += sum;
  }
};

/// total += each of `sums`, where there are any; then the carries.
struct AddAndCarry {
  const double* sums;
  int64_t count;
  ExactSum* total;
  SIXFOLD_DEVICE void operator()(int64_t) const {
    ExactSum sum = *total;
    for (int64_t i = 0; i < count; ++i) sum.add(sums[i]);
    sum.carry();
    *total = sum;
  }
};

struct Reciprocal {
  const int64_t* count;
  float* y;
  SIXFOLD_DEVICE void operator()(int64_t) const { *y = *count == 0 ? 0.0f : 1.0f / static_cast<float>(*count); }
};

struct ToFixedPoint {
  const float* values;
  int64_t count;
  int num_ranks;
  int64_t* words;
  SIXFOLD_DEVICE void operator()(int64_t) const {
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += static_cast<double>(values[i]);
    const FixedPoint fixed = FixedPoint::of(total, num_ranks);
    words[0] = fixed.units;
    words[1] = fixed.num_invalid;
  }
};

struct ClipFactor {
  const ExactSum* sum;
  double max_norm;
  float* scale;
  SIXFOLD_DEVICE void operator()(int64_t) const { *scale = clip_scale(sum->value(), max_norm); }
};

ExactSum* checked_sum(const Tensor& sum) {
  return reinterpret_cast<ExactSum*>(checked<int64_t>(sum, {ExactSum::kNumWords}, "sum of squares"));
}

int64_t num_pieces(int64_t count) {
  return (count + kElementsPerSum - 1) / kElementsPerSum;
}

/// `pieces`: [num_pieces(count)], used up.
void start_sum(Context& context, const float* x, int64_t count, double* pieces, double* total) {
  if (takes_packs(0, {x})) {
    for_each_row<RowBy::Block>(context, num_pieces(count), SquaresOfPieces<kPack>{x, count, pieces});
  } else {
    for_each_row<RowBy::Block>(context, num_pieces(count), SquaresOfPieces<1>{x, count, pieces});
  }
  for_each_row<RowBy::Block>(context, 1, SumOfSums{pieces, num_pieces(count), total});
}

void add_exact_sum(Context& context, const float* x, int64_t count, ExactSum* pieces, ExactSum* total) {
  for_each_row<RowBy::Block>(context, num_pieces(count), ExactSumsOfPieces{x, count, pieces});
  for_each_row<RowBy::Block>(context, ExactSum::kNumWords, AddPieces{pieces, num_pieces(count), total});
  for_each_index(context, 1, AddAndCarry{nullptr, 0, total});
}

}  // namespace

void reciprocal(Context& context, const Tensor& count, const Tensor& y) {
  for_each_index(context, 1, Reciprocal{checked<int64_t>(count, {1}, "count"), checked<float>(y, {1}, "reciprocal")});
}

void to_fixed_point(Context& context, const Tensor& values, int num_ranks, const Tensor& sum) {
  for_each_index(context, 1,
                 ToFixedPoint{checked_elements<float>(values, values.numel(), "values"), values.numel(), num_ranks,
                              checked<int64_t>(sum, {2}, "sum in fixed point")});
}

void add_squares(Context& context, const std::vector<Tensor>& tensors, SquareSums how, const Tensor& sum) {
  ExactSum* const total = checked_sum(sum);
  const bool exact = how == SquareSums::ByElement;
  int64_t most_pieces = 0;
  for (const Tensor& x : tensors) most_pieces = std::max(most_pieces, num_pieces(x.numel()));
  const size_t num_sums = exact ? 0 : tensors.size();
  const size_t bytes_per_piece = exact ? sizeof(ExactSum) : sizeof(double);
  const auto block = context.memory.allocate(
      num_sums * sizeof(double) + static_cast<size_t>(most_pieces) * bytes_per_piece, Category::Activations);
  double* const sums = static_cast<double*>(block.get());
  void* const pieces = sums + num_sums;  // of one tensor after the other
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t count = tensors[i].numel();
    const float* x = checked_elements<float>(tensors[i], count, "tensor to square");
    SIXFOLD_CHECK_LT(count, int64_t{1} << 31, "elements of a tensor to square");
    if (exact) {
      add_exact_sum(context, x, count, static_cast<ExactSum*>(pieces), total);
    } else {
      start_sum(context, x, count, static_cast<double*>(pieces), sums + i);
    }
  }
  if (!exact) for_each_index(context, 1, AddAndCarry{sums, static_cast<int64_t>(num_sums), total});
}

void clip_factor(Context& context, const Tensor& sum, double max_norm, const Tensor& scale) {
  SIXFOLD_CHECK_LE(0.0, max_norm, "the norm to clip to");
  for_each_index(context, 1, ClipFactor{checked_sum(sum), max_norm, checked<float>(scale, {1}, "scale of gradients")});
}

}  // namespace sixfold::kernels::cuda
