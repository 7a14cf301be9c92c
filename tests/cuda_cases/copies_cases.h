#pragma once

#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// Every byte, of tensors that start anywhere; nothing of their neighbours.
inline void check_copies(kernels::Context& context) {
  for (const GpuVariant variant : kGpuVariants) {
    for (const int64_t count : {0, 1, 33, 1000}) {
      SCOPED_TRACE(testing::Message() << variant << ", " << count);
      GpuRun run(context, variant);
      const Floats values = random_floats(count + 2, 1), others = random_floats(count + 2, 2);
      const Tensor src = run.typed(values, {count + 2}), dst = run.typed(others, {count + 2});
      Floats expected = run.rounded(others);
      kernels::copy(context, src.slice(1, {count, 1}), dst.slice(1, {count}));
      for (int64_t i = 1; i <= count; ++i)
        expected[static_cast<size_t>(i)] = run.rounded(values)[static_cast<size_t>(i)];
      EXPECT_EQ(run.read(dst), expected);
      kernels::zero(context, dst.slice(1, {count}));
      std::fill(expected.begin() + 1, expected.end() - 1, 0.0f);
      EXPECT_TRUE(same_bits(run.read(dst), expected));
      EXPECT_THROW(kernels::copy(context, src, dst.slice(0, {count + 1})), CheckError);
    }
  }
  GpuRun run(context, kGpuVariants[0]);
  EXPECT_THROW(kernels::copy(context, run.f32_output({2}), run.ints({1, 2}, {2})), CheckError);
  const Tensor on_cpu = Tensor::of_host({2}, DType::F32);
  EXPECT_THROW(kernels::zero(context, on_cpu), CheckError);
  EXPECT_THROW(kernels::copy(context, on_cpu, run.f32_output({2})), CheckError);
}

}  // namespace sixfold::test
