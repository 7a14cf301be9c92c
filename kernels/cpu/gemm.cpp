#include "kernels/cpu/gemm.h"

#define EIGEN_DONT_PARALLELIZE  // tiles of the result are shared out here
#include <Eigen/Core>

#include "kernels/cpu/parallel.h"

namespace sixfold::kernels {

namespace {

// Largest tile of c that is one piece of work. Each packs its part of a and b anew, so small tiles cost speed.
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileColumns = 512;

/// Size of equal parts, multiples of 8, that cover n with as few as `largest` allows.
int64_t part_size(int64_t n, int64_t largest) {
  const int64_t num_parts = std::max<int64_t>(1, (n + largest - 1) / largest);
  return ((n + num_parts - 1) / num_parts + 7) / 8 * 8;
}

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;
using MutableMap = Eigen::Map<RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;

ConstMap stored(Operand x, int64_t rows, int64_t columns) {
  return x.transposed ? ConstMap(x.data, columns, rows, Eigen::OuterStride<>(x.stride))
                      : ConstMap(x.data, rows, columns, Eigen::OuterStride<>(x.stride));
}

float element(Operand x, int64_t row, int64_t column) {
  return x.transposed ? x.data[column * x.stride + row] : x.data[row * x.stride + column];
}

}  // namespace

void gemm_tile(int64_t m, int64_t n, int64_t k, Operand a, Operand b, float* c, int64_t c_stride) {
  // Eigen multiplies vectors and tiny matrices in other ways than large ones, with sums that start at the first aligned
  // address: results would depend on where a buffer lies.
  if (m == 1 || n == 1 || k == 1 || m + n + k < 20) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = 0; p < k; ++p) {
        const float a_ip = element(a, i, p);
        for (int64_t j = 0; j < n; ++j) c[i * c_stride + j] += a_ip * element(b, p, j);
      }
    return;
  }
  MutableMap out(c, m, n, Eigen::OuterStride<>(c_stride));
  const ConstMap lhs = stored(a, m, k), rhs = stored(b, k, n);
  if (a.transposed && b.transposed) {
    out.noalias() += lhs.transpose() * rhs.transpose();
  } else if (a.transposed) {
    out.noalias() += lhs.transpose() * rhs;
  } else if (b.transposed) {
    out.noalias() += lhs * rhs.transpose();
  } else {
    out.noalias() += lhs * rhs;
  }
}

void gemm(Context& context, int64_t m, int64_t n, int64_t k, Operand a, Operand b, float* c, GemmStart start,
          const float* bias) {
  if (m == 0 || n == 0) return;
  const int64_t tile_rows = part_size(m, kTileRows), tile_columns = part_size(n, kTileColumns);
  const int64_t row_tiles = (m + tile_rows - 1) / tile_rows, column_tiles = (n + tile_columns - 1) / tile_columns;
  parallel_for(context, Pieces::Long, row_tiles * column_tiles, [&](int64_t tile) {
    const int64_t i0 = tile / column_tiles * tile_rows, j0 = tile % column_tiles * tile_columns;
    const int64_t rows = std::min(tile_rows, m - i0), columns = std::min(tile_columns, n - j0);
    float* out = c + i0 * n + j0;
    for (int64_t i = 0; i < rows; ++i) {
      if (start == GemmStart::Zero) std::fill_n(out + i * n, columns, 0.0f);
      if (start == GemmStart::Bias) std::copy_n(bias + j0, columns, out + i * n);
    }
    const Operand a_part{a.data + (a.transposed ? i0 : i0 * a.stride), a.stride, a.transposed};
    const Operand b_part{b.data + (b.transposed ? j0 * b.stride : j0), b.stride, b.transposed};
    if (k > 0) gemm_tile(rows, columns, k, a_part, b_part, out, n);
  });
}

}  // namespace sixfold::kernels
