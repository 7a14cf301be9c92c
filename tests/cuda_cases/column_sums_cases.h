#pragma once

#include "kernels/cuda/column_sums.h"
#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// Sums of matrices that leave tails in every stage are those in double precision, added to what was there, and the
/// same bits when they are summed again.
inline void check_column_sums(kernels::Context& context, double slack = 1) {
  struct Sizes {
    size_t rows, columns;
  };
  for (const GpuVariant variant : kGpuVariants) {
    // One row; chunks of 16 rows; more than 1024 chunks' worth of them; tiles of 32, 128 and 256 columns.
    for (const Sizes s : {Sizes{1, 1}, Sizes{3, 5}, Sizes{17, 264}, Sizes{33, 129}, Sizes{130, 768}, Sizes{16500, 8}}) {
      SCOPED_TRACE(testing::Message() << s.rows << "x" << s.columns << ", " << variant);
      GpuRun run(context, variant, slack);
      const auto rows = static_cast<int64_t>(s.rows), columns = static_cast<int64_t>(s.columns);
      const Floats x = random_floats(rows * columns, 1), start = random_floats(columns, 2);
      const Tensor in = run.typed(x, {rows, columns});
      const Tensor sums = run.f32(start, {columns}), again = run.f32(start, {columns});
      kernels::cuda::add_column_sums(context, in, sums);
      kernels::cuda::add_column_sums(context, in, again);
      Doubles expected = to_doubles(start);
      const Doubles values = to_doubles(run.rounded(x));
      for (size_t i = 0; i < values.size(); ++i) expected[i % s.columns] += values[i];
      expect_close(run.read(sums), expected, run.f32_tolerance(1e-5 * std::sqrt(static_cast<double>(s.rows))), "sums");
      EXPECT_TRUE(same_bits(run.read(sums), run.read(again)));
    }
  }
}

}  // namespace sixfold::test
