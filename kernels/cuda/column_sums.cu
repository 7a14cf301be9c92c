#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_sums.h"

namespace sixfold::kernels::cuda {

namespace {

template <typename T>
struct Elements {
  const T* x;
  int64_t num_columns;
  template <int n>
  SIXFOLD_DEVICE void add(int64_t row, int64_t column, float (&sums)[1][n]) const {
    float values[n];
    load(x + row * num_columns + column, values);
    SIXFOLD_UNROLL
    for (int i = 0; i < n; ++i) sums[0][i] += values[i];
  }
};

}  // namespace

void add_column_sums(Context& context, const Tensor& x, const Tensor& sums) {
  const int64_t rows = checked_dim(x, 2, 0, "column_sums x"), columns = x.dim(1);
  dispatch_float(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const Elements<T> elements{checked<T>(x, {rows, columns}, "column_sums x"), columns};
    sum_over_rows<T, 1>(context, rows, columns, {elements.x}, elements,
                        {{checked<float>(sums, {columns}, "column_sums sums")}});
  });
}

}  // namespace sixfold::kernels::cuda
