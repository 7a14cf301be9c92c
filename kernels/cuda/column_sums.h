// Sums over the rows of a matrix: gradients of biases and of LayerNorm's weights.
//
// In two stages, in an order that depends on the matrix's shape only. First warps sum chunks of rows, each of a tile of
// columns; then warps sum the chunks, each of a few columns, and add the result to what is there. The sums of chunks
// are a temporary (temporaries.h).
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/temporaries.h"

namespace sixfold::kernels::cuda {

/// sums[N] f32 += column sums of x[R, N], of f32 or bf16.
void add_column_sums(Context& context, const Tensor& x, const Tensor& sums);

/// Where sums go, [num_columns] f32 each; a sum without a place (nullptr) is left out.
template <int num_sums>
struct SumPlaces {
  float* sum[num_sums];
};

/// First stage: row `chunk * num_tiles + tile` of its launch.
template <int pack, int num_sums, typename Terms>
struct SumChunks {
  static constexpr int64_t kTile = 32 * pack;  // columns: `pack` a lane
  static constexpr int kRowsAtOnce = 4;        // whose loads are under way together

  Terms terms;
  int64_t num_rows, num_columns, rows_per_chunk, num_chunks, num_tiles;
  float* partial;  // [num_sums, num_chunks, num_columns]

  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    const int64_t chunk = row / num_tiles, first = row % num_tiles * kTile;
    const int64_t begin = chunk * rows_per_chunk, end = smaller(num_rows, begin + rows_per_chunk);
    for_channels<pack>(lanes, smaller(kTile, num_columns - first), [&](int64_t i) {
      const int64_t column = first + i;
      float sums[num_sums][pack] = {};
      int64_t r = begin;
      for (; r + kRowsAtOnce <= end; r += kRowsAtOnce) {
        SIXFOLD_UNROLL
        for (int k = 0; k < kRowsAtOnce; ++k) terms.template add<pack>(r + k, column, sums);
      }
      for (; r < end; ++r) terms.template add<pack>(r, column, sums);
      SIXFOLD_UNROLL
      for (int k = 0; k < num_sums; ++k) store(partial + (k * num_chunks + chunk) * num_columns + column, sums[k]);
    });
  }

 private:
  SIXFOLD_DEVICE static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
};

/// Second stage: row i of its launch is columns i * pack to (i + 1) * pack - 1 of one sum.
template <int pack>
struct AddChunks {
  const float* partial;  // [num_chunks, num_columns]
  int64_t num_chunks, num_columns;
  float* sum;

  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    const float* column = partial + row * pack;
    float total[pack] = {};
    for (int64_t chunk = lanes.index(); chunk < num_chunks; chunk += lanes.count()) {
      float values[pack];
      load(column + chunk * num_columns, values);
      SIXFOLD_UNROLL
      for (int i = 0; i < pack; ++i) total[i] += values[i];
    }
    SIXFOLD_UNROLL
    for (int i = 0; i < pack; ++i) total[i] = lanes.sum(total[i]);
    if (lanes.index() != 0) return;
    float result[pack];
    load(sum + row * pack, result);
    SIXFOLD_UNROLL
    for (int i = 0; i < pack; ++i) result[i] += total[i];
    store(sum + row * pack, result);
  }
};

/// places.sum[k][c] += the sum over r in [0, num_rows) of terms' k-th value at (r, c): terms.add<n>(r, c, sums) adds
/// those of columns c .. c + n - 1 to float sums[num_sums][n], n as with_wide_packs() has it for rows of T at
/// `addresses`.
template <typename T, int num_sums, typename Terms>
void sum_over_rows(Context& context, int64_t num_rows, int64_t num_columns,
                   std::initializer_list<const void*> addresses, const Terms& terms,
                   const SumPlaces<num_sums>& places) {
  if (num_rows == 0 || num_columns == 0) return;
  const RowChunks cut(num_rows);
  const auto bytes = static_cast<size_t>(column_sum_temporaries(num_rows, num_sums * num_columns));
  const auto block = context.memory.allocate(bytes, Category::Activations);
  float* partial = static_cast<float*>(block.get());
  with_wide_packs<T>(num_columns, addresses, [&]<int pack>() {
    using Stage = SumChunks<pack, num_sums, Terms>;
    const int64_t num_tiles = (num_columns + Stage::kTile - 1) / Stage::kTile;
    for_each_row<RowBy::Warp>(
        context, cut.num_chunks * num_tiles,
        Stage{terms, num_rows, num_columns, cut.rows_per_chunk, cut.num_chunks, num_tiles, partial});
  });
  for (int k = 0; k < num_sums; ++k) {
    float* sum = places.sum[k];
    if (sum == nullptr) continue;
    const float* chunks = partial + k * cut.num_chunks * num_columns;
    if (takes_packs(num_columns, {sum})) {
      for_each_row<RowBy::Warp>(context, num_columns / kPack,
                                AddChunks<kPack>{chunks, cut.num_chunks, num_columns, sum});
    } else {
      for_each_row<RowBy::Warp>(context, num_columns, AddChunks<1>{chunks, cut.num_chunks, num_columns, sum});
    }
  }
}

}  // namespace sixfold::kernels::cuda
