// Attention from whole matrices of scores, against the CPU's.
#pragma once

#include "kernels/cuda/reference_attention.h"
#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// Attention from whole matrices is that of the CPU's kernels, of what is left of qkv and dout after rounding. Of bf16,
/// probabilities and gradients of scores are rounded before they are multiplied, and results once more.
inline void check_reference_attention(kernels::Context& context, double slack = 1) {
  struct Sizes {
    int64_t rows, seq_len, heads, head_dim;
  };
  for (const GpuVariant variant : kGpuVariants)
    for (const Sizes& s : {Sizes{1, 1, 1, 1}, Sizes{2, 2, 3, 5}, Sizes{1, 33, 2, 8}, Sizes{2, 65, 3, 16}}) {
      SCOPED_TRACE(testing::Message() << "B " << s.rows << " T " << s.seq_len << " H " << s.heads << " D " << s.head_dim
                                      << ", " << variant);
      GpuRun run(context, variant, slack);
      const int64_t rows = s.rows * s.seq_len, channels = s.heads * s.head_dim;
      const Shape qkv_shape{rows, 3 * channels}, out_shape{rows, channels}, lse_shape{s.rows, s.heads, s.seq_len};
      const Floats qkv = run.rounded(random_floats(numel(qkv_shape), 1, 2.0));
      const Floats dout = run.rounded(random_floats(numel(out_shape), 2));

      KernelRun on_cpu(1, 0);
      const Tensor cpu_qkv = on_cpu.input(qkv, qkv_shape), cpu_out = on_cpu.output(out_shape);
      const Tensor cpu_lse = on_cpu.output(lse_shape), cpu_dqkv = on_cpu.output(qkv_shape);
      kernels::attention_forward(on_cpu.context, cpu_qkv, s.seq_len, s.heads, cpu_out, cpu_lse);
      kernels::attention_backward(on_cpu.context, on_cpu.input(dout, out_shape), cpu_qkv, cpu_out, cpu_lse, s.seq_len,
                                  s.heads, cpu_dqkv);
      const std::vector<Floats> expected = on_cpu.outputs();

      const Tensor in = run.typed(qkv, qkv_shape), out = run.typed_output(out_shape), lse = run.f32_output(lse_shape);
      const Tensor dqkv = run.typed_output(qkv_shape);
      kernels::cuda::attention_reference_forward(context, in, s.seq_len, s.heads, out, lse);
      kernels::cuda::attention_reference_backward(context, run.typed(dout, out_shape), in, lse, s.seq_len, s.heads,
                                                  dqkv);
      expect_close(run.read(out), to_doubles(expected[0]), run.tolerance(2e-5, 0x1p-6), "out");
      expect_close(run.read(lse), to_doubles(expected[1]), run.f32_tolerance(1e-5), "lse");
      expect_close(run.read(dqkv), to_doubles(expected[2]), run.tolerance(1e-4, 0x1p-4), "dqkv");
    }
}

}  // namespace sixfold::test
