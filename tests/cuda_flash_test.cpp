// Flash attention of the GPU, its warps and tensor cores emulated, against a reference in double and the CPU's.
#include "kernels/cuda/flash_attention.h"
#include "tests/cuda_cases/attention_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

class CudaFlash : public testing::Test {
 protected:
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
};

TEST_F(CudaFlash, EqualsReference) {
  check_attention(context);
}
TEST_F(CudaFlash, LargeScoresDoNotOverflow) {
  check_attention_of_large_scores(context);
}
TEST_F(CudaFlash, BitsDoNotDependOnAddresses) {
  check_attention_bits(context);
}
TEST_F(CudaFlash, NoQuerySeesALaterKey) {
  check_attention_is_causal(context);
}

TEST_F(CudaFlash, IsThatOfTheCpu) {
  const AttentionSizes s{3, 129, 3, 64};
  const Floats qkv = random_floats(numel(s.qkv_shape()), 1), dout = random_floats(numel(s.out_shape()), 2);
  const AttentionOutputs actual = run_attention(context, {DType::F32, 0}, s, qkv, dout);
  KernelRun cpu(1, 0);
  const Tensor in = cpu.input(qkv, s.qkv_shape()), out = cpu.output(s.out_shape()), lse = cpu.output(s.lse_shape());
  kernels::attention_forward(cpu.context, in, s.seq_len, s.heads, out, lse);
  kernels::attention_backward(cpu.context, cpu.input(dout, s.out_shape()), in, out, lse, s.seq_len, s.heads,
                              cpu.output(s.qkv_shape()));
  const std::vector<Floats> expected = cpu.outputs();
  expect_close(actual.out, to_doubles(expected[0]), 2e-6, "out");
  expect_close(actual.lse, to_doubles(expected[1]), 2e-6, "lse");
  expect_close(actual.dqkv, to_doubles(expected[2]), 5e-6, "dqkv");
}

TEST_F(CudaFlash, TemporariesAreOneFloatAQueryAndHead) {
  const AttentionSizes s{1, 300, 3, 32};
  GpuRun run(context, {DType::BF16, 0});
  const Tensor zeros = run.typed(Floats(static_cast<size_t>(numel(s.out_shape())), 0.0f), s.out_shape());
  const Tensor qkv = run.typed(Floats(static_cast<size_t>(numel(s.qkv_shape())), 0.0f), s.qkv_shape());
  const Tensor lse = run.f32_output(s.lse_shape());
  gpu.memory.reset_peaks();
  const size_t before = gpu.memory.live_bytes(Category::Activations);
  kernels::attention_forward(context, qkv, s.seq_len, s.heads, zeros, lse);
  EXPECT_EQ(gpu.memory.peak_bytes(Category::Activations), before);
  kernels::attention_backward(context, zeros, qkv, zeros, lse, s.seq_len, s.heads, run.typed_output(s.qkv_shape()));
  EXPECT_EQ(gpu.memory.peak_bytes(Category::Activations) - before, 300u * 3 * sizeof(float));
}

TEST_F(CudaFlash, RefusesPartsOfSequencesAndHeads) {
  GpuRun run(context, {DType::F32, 0});
  const Tensor qkv = run.f32_output({6, 12}), out = run.f32_output({6, 4}), lse = run.f32_output({2, 1, 3});
  EXPECT_THROW(kernels::attention_forward(context, qkv, 4, 1, out, lse), CheckError);
  EXPECT_THROW(kernels::attention_forward(context, qkv, 3, 3, out, lse), CheckError);
  EXPECT_THROW(kernels::attention_forward(context, qkv, 3, 2, out, lse), CheckError);  // lse [B, H, T]
}

TEST_F(CudaFlash, RefusesLargerHeadsThanItsTiles) {
  GpuRun run(context, {DType::F32, 0});
  const Tensor qkv = run.f32_output({1, 3 * 129}), out = run.f32_output({1, 129}), lse = run.f32_output({1, 1, 1});
  EXPECT_THROW(kernels::cuda::attention_flash_forward(context, qkv, 1, 1, out, lse), CheckError);
}

}  // namespace
}  // namespace sixfold::test
