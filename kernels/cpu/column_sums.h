// Sums over the rows of a matrix: gradients of biases and of LayerNorm's weights.
#pragma once

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/temporaries.h"

namespace sixfold::kernels {

/// Lets add_row(r, sums) add row r to sums[num_columns], for all rows, and add(sums) take the result. Rows are cut into
/// chunks of a fixed size: one thread sums a chunk, in row order; then add(sums) is called for each chunk, in order.
template <typename AddRow, typename Add>
void sum_rows(Context& context, int64_t num_rows, int64_t num_columns, AddRow&& add_row, Add&& add) {
  constexpr int64_t kRowsPerChunk = cpu::kRowsPerChunk;
  const int64_t num_chunks = cpu::num_row_chunks(num_rows);
  const auto bytes = static_cast<size_t>(cpu::column_sum_temporaries(num_rows, num_columns));
  const auto block = context.memory.allocate(bytes, Category::Activations);
  float* partial = static_cast<float*>(block.get());
  parallel_for(context.num_threads, num_chunks, [&](int64_t chunk) {
    float* sums = partial + chunk * num_columns;
    std::fill_n(sums, num_columns, 0.0f);
    const int64_t end = std::min(num_rows, (chunk + 1) * kRowsPerChunk);
    for (int64_t r = chunk * kRowsPerChunk; r < end; ++r) add_row(r, sums);
  });
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) add(partial + chunk * num_columns);
}

}  // namespace sixfold::kernels
