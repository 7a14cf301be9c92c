#pragma once

#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// Which rows, on a GPU: sample_index is where its kernels read it.
struct GpuTokenRows {
  static constexpr int64_t kSamples[] = {5, (int64_t{1} << 40) + 3, 7};
  kernels::TokenRows on_cpu, on_gpu;

  /// rows.num_rows <= 3; sample_index is filled in.
  GpuTokenRows(kernels::Context& context, const kernels::TokenRows& rows)
      : on_cpu(rows),
        on_gpu(rows),
        samples_(Tensor::empty({rows.num_rows}, DType::I64, context.memory, Category::Other)) {
    kernels::from_host(context, Tensor::view(const_cast<int64_t*>(kSamples), {rows.num_rows}, DType::I64), samples_);
    on_cpu.sample_index = kSamples;
    on_gpu.sample_index = samples_.device_data<int64_t>();
  }

 private:
  Tensor samples_;
};

/// What the CPU's dropout makes of ones.
inline Floats dropout_mask_of_cpu(const kernels::DropoutSite& site, const kernels::TokenRows& rows, int64_t channels) {
  const Shape shape = {rows.num_rows * rows.seq_len, channels};
  KernelRun run(1, 0);
  const Tensor ones = run.input(Floats(static_cast<size_t>(numel(shape)), 1.0f), shape);
  kernels::dropout_forward(run.context, site, rows, ones, Tensor(), run.output(shape));
  return run.outputs()[0];
}

struct DropoutCase {
  int64_t num_rows, seq_len, channels, seq_offset, channel_offset;
};

/// One element; channels that are whole packs, more than a warp takes at a time; channels and offsets that are not.
inline constexpr DropoutCase kDropoutCases[] = {{1, 1, 1, 0, 0},   {3, 5, 33, 2, 0}, {2, 7, 132, 3, 8},
                                                {2, 3, 129, 0, 1}, {3, 4, 36, 1, 6}, {2, 2, 3, 0, 3}};

/// The masks are the CPU's, bit by bit, forward and backward, also in place.
inline void check_dropout(kernels::Context& context) {
  const kernels::DropoutSite site{0.25f, 1234, 17, 2, 1};
  for (const GpuVariant variant : kGpuVariants) {
    for (const DropoutCase& c : kDropoutCases) {
      SCOPED_TRACE(testing::Message() << variant << ", " << c.num_rows << "x" << c.seq_len << "x" << c.channels
                                      << " from channel " << c.channel_offset);
      GpuRun run(context, variant);
      const GpuTokenRows rows(context, {nullptr, c.num_rows, c.seq_len, c.seq_offset, c.channel_offset});
      const Shape shape = {c.num_rows * c.seq_len, c.channels};
      const Floats mask = dropout_mask_of_cpu(site, rows.on_cpu, c.channels);
      const Tensor y = run.typed_output(shape);
      kernels::dropout_forward(context, site, rows.on_gpu, run.typed(Floats(mask.size(), 1.0f), shape), Tensor(), y);
      EXPECT_EQ(run.read(y), run.rounded(mask));

      const Floats x = random_floats(numel(shape), 1), residual = random_floats(numel(shape), 2);
      const Tensor xt = run.typed(x, shape), residual_t = run.typed(residual, shape);
      Doubles forward = to_doubles(run.rounded(residual)), backward = to_doubles(run.rounded(x));
      for (size_t i = 0; i < mask.size(); ++i) {
        backward[i] *= static_cast<double>(mask[i]);
        forward[i] += backward[i];
      }
      kernels::dropout_forward(context, site, rows.on_gpu, xt, residual_t, y);
      const Floats out = run.read(y);
      expect_close(out, forward, run.tolerance(1e-6), "y");
      const Tensor dx = run.typed_output(shape), over_x = run.typed(x, shape);
      kernels::dropout_backward(context, site, rows.on_gpu, xt, dx);
      expect_close(run.read(dx), backward, run.tolerance(1e-6), "dx");
      kernels::dropout_forward(context, site, rows.on_gpu, over_x, residual_t, over_x);
      EXPECT_EQ(run.read(over_x), out);
      kernels::dropout_forward(context, site, rows.on_gpu, xt, residual_t, residual_t);
      EXPECT_EQ(run.read(residual_t), out);
      kernels::dropout_backward(context, site, rows.on_gpu, xt, xt);
      EXPECT_EQ(run.read(xt), run.read(dx));
    }
  }
}

/// Nothing is drawn: not even which samples there are is looked at.
inline void check_dropout_of_nothing(kernels::Context& context) {
  const kernels::DropoutSite site{0.0f, 1, 1, 0, 0};
  for (const GpuVariant variant : kGpuVariants) {
    for (const int64_t channels : {8, 9}) {
      GpuRun run(context, variant);
      const kernels::TokenRows rows{nullptr, 2, 3, 0, 0};
      const Floats x = random_floats(6 * channels, 1), residual = random_floats(6 * channels, 2);
      const Tensor xt = run.typed(x, {6, channels}), y = run.typed_output({6, channels});
      kernels::dropout_backward(context, site, rows, xt, y);
      EXPECT_EQ(run.read(y), run.rounded(x)) << variant;
      kernels::dropout_forward(context, site, rows, xt, run.typed(residual, {6, channels}), y);
      Floats sum = run.rounded(residual);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += run.rounded(x)[i];
      EXPECT_EQ(run.read(y), run.rounded(sum)) << variant;
    }
  }
  GpuRun run(context, kGpuVariants[0]);
  const Tensor x = run.typed_output({3, 4});
  EXPECT_THROW(kernels::dropout_forward(context, {1.0f, 0, 0, 0, 0}, {nullptr, 1, 3, 0, 0}, x, Tensor(), x),
               CheckError);
}

}  // namespace sixfold::test
