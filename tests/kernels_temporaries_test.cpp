// What kernels say that they take while they run, beside bytes worked out by hand and the peaks that memory has seen.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/kernels.h"
#include "kernels/temporaries.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

/// Bytes of activations that `run` has at once.
size_t peak_of(kernels::Context& context, const std::function<void()>& run) {
  context.memory.reset_peaks();
  run();
  return context.memory.peak_bytes(Category::Activations);
}

class Temporaries : public testing::Test {
 protected:
  Tensor zeros(kernels::Context& context, Shape shape, DType dtype = DType::F32) {
    return kernels::zeros(context, std::move(shape), dtype, Category::Other);
  }
  void expect_dropout(kernels::Context& context, int64_t num_channels, size_t bytes) {
    const Tensor x = zeros(context, {4, num_channels}), samples = zeros(context, {2}, DType::I64);
    const kernels::TokenRows rows{static_cast<const int64_t*>(samples.raw()), 2, 2};
    EXPECT_EQ(peak_of(context, [&] { kernels::dropout_backward(context, {.probability = 0.5f}, rows, x, x); }), bytes);
    EXPECT_EQ(kernels::dropout_temporaries(device(context), num_channels, context.num_threads),
              static_cast<int64_t>(bytes));
  }
  void expect_attention(kernels::Context& context, int64_t num_rows, int64_t seq_len, int64_t num_heads, size_t bytes) {
    const int64_t num_tokens = num_rows * seq_len, num_channels = 8 * num_heads;
    const Tensor qkv = zeros(context, {num_tokens, 3 * num_channels}), out = zeros(context, {num_tokens, num_channels});
    const Tensor lse = zeros(context, {num_rows, num_heads, seq_len}), dqkv = zeros(context, qkv.shape());
    const auto run = [&] { kernels::attention_backward(context, out, qkv, out, lse, seq_len, num_heads, dqkv); };
    EXPECT_EQ(peak_of(context, run), bytes);
    EXPECT_EQ(
        kernels::attention_backward_temporaries(device(context), num_tokens, seq_len, num_heads, context.num_threads),
        static_cast<int64_t>(bytes));
  }
  void expect_column_sum(kernels::Context& context, int64_t num_rows, int64_t num_columns, size_t bytes) {
    const Tensor x = zeros(context, {num_rows, 1}), dy = zeros(context, {num_rows, num_columns});
    const Tensor dbias = zeros(context, {num_columns});
    EXPECT_EQ(peak_of(context, [&] { kernels::linear_backward_weight(context, x, dy, {}, dbias); }), bytes);
    EXPECT_EQ(kernels::column_sum_temporaries(device(context), num_rows, num_columns), static_cast<int64_t>(bytes));
  }
  static DeviceType device(const kernels::Context& context) {
    return context.queue == nullptr ? DeviceType::Cpu : DeviceType::Cuda;
  }

  Memory memory;
  kernels::Context cpu{memory, 3};
  EmulatedGpu gpu;
};

TEST_F(Temporaries, OfTheCpu) {
  expect_dropout(cpu, 50, 3 * 64 * 4);  // 52 floats in whole blocks, in lines of 16
  expect_dropout(cpu, 64, 3 * 64 * 4);
  expect_attention(cpu, 2, 33, 3, 3 * (2 * 64 * 64 + 48) * 4);
  expect_column_sum(cpu, 128, 10, 10 * 4);
  expect_column_sum(cpu, 300, 10, 3 * 10 * 4);
  EXPECT_TRUE(kernels::attention_streams(DeviceType::Cpu, 1000));
}

TEST_F(Temporaries, OfAGpu) {
  kernels::Context context = gpu.context();
  expect_dropout(context, 50, 0);
  expect_attention(context, 2, 33, 3, 2 * 33 * 3 * 4);
  expect_column_sum(context, 300, 10, 19 * 10 * 4);    // chunks of 16 rows
  expect_column_sum(context, 20000, 3, 1000 * 3 * 4);  // of 20, since 1024 of 16 are not enough
  EXPECT_TRUE(kernels::attention_streams(DeviceType::Cuda, 128));
  EXPECT_FALSE(kernels::attention_streams(DeviceType::Cuda, 129));
}

}  // namespace
}  // namespace sixfold::test
