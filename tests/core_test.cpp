// Core: memory accounting, tensors, errors. (Conversions of dtypes are in reduce_test, Philox in kernels_dropout_test.)
#include <cstdint>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/core/log.h"
#include "runtime/core/tensor.h"
#include "tests/harness.h"

namespace sixfold::test {
namespace {

TEST(Memory, CountsLiveAndPeakByCategory) {
  Memory memory;
  {
    const Tensor a = Tensor::empty({100}, DType::F32, memory, Category::Activations);
    {
      const Tensor b = Tensor::empty({50}, DType::BF16, memory, Category::Activations);
      const Tensor c = Tensor::empty({3, 5}, DType::I64, memory, Category::Optimizer);
      EXPECT_EQ(memory.live_bytes(Category::Activations), 500u);
      EXPECT_EQ(memory.live_bytes(Category::Optimizer), 120u);
    }
    EXPECT_EQ(memory.live_bytes(Category::Activations), 400u);
    const Tensor d = Tensor::empty({10}, DType::U8, memory, Category::Gradients);
    EXPECT_EQ(memory.peak_total_bytes(), 620u);  // a, b and c at once; d came later
  }
  EXPECT_EQ(memory.live_bytes(Category::Activations), 0u);
  EXPECT_EQ(memory.peak_bytes(Category::Activations), 500u);
  EXPECT_EQ(memory.peak_bytes(Category::Gradients), 10u);
  memory.reset_peaks();
  EXPECT_EQ(memory.peak_bytes(Category::Activations), 0u);
  memory.account(Category::Communication, 77);
  EXPECT_EQ(memory.peak_bytes(Category::Communication), 77u);
  memory.account(Category::Communication, -77);
  EXPECT_EQ(memory.live_bytes(Category::Communication), 0u);
}

TEST(Memory, BlocksAreAlignedAndComeBack) {
  Memory memory;
  for (int64_t count : {1, 63, 64, 65, 1000, 5 << 20}) {
    void* first = nullptr;
    for (int round = 0; round < 2; ++round) {
      const Tensor tensor = Tensor::zeros({count}, DType::U8, memory, Category::Other);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % kAlignment, 0u);
      if (round == 0) first = tensor.raw();
      EXPECT_EQ(tensor.raw(), first);  // the block of the first round, no new pages
    }
  }
}

TEST(Memory, EachThreadRankHasItsOwn) {
  run_ranks(3, [](comm::World& world) {
    const int64_t count = 1000 * (world.rank() + 1);
    const Tensor tensor = Tensor::empty({count}, DType::F32, world.memory(), Category::Parameters);
    world.group().barrier();
    EXPECT_EQ(world.memory().peak_bytes(Category::Parameters), static_cast<size_t>(4 * count));
    world.group().barrier();
  });
}

TEST(Tensors, ViewsShareAndKeepTheirStorage) {
  Memory memory;
  Tensor view;
  {
    const Tensor whole = Tensor::zeros({2, 6}, DType::F32, memory, Category::Other);
    view = whole.slice(6, {2, 3});
    whole.data<float>()[7] = 5;
  }
  EXPECT_EQ(memory.live_bytes(Category::Other), 48u);  // the view holds on
  EXPECT_EQ(view.data<float>()[1], 5);
  EXPECT_EQ(view.reshape({6}).dim(0), 6);
  EXPECT_THROW(view.reshape({5}), CheckError);
  EXPECT_THROW(view.slice(4, {3}), CheckError);
  EXPECT_THROW(view.data<int32_t>(), CheckError);
  EXPECT_THROW(numel({2, -1}), CheckError);

  float mine[4] = {1, 2, 3, 4};
  const Tensor borrowed = Tensor::view(mine, {4}, DType::F32);
  view.slice(0, {4}).copy_from(borrowed);
  EXPECT_EQ(view.data<float>()[3], 4);
  EXPECT_THROW(view.copy_from(borrowed), CheckError);
  EXPECT_EQ(Tensor::empty({0, 8}, DType::F32, memory, Category::Other).raw(), nullptr);
  EXPECT_FALSE(Tensor().defined());
}

TEST(Errors, AFailedCheckShowsBothOperands) {
  try {
    SIXFOLD_CHECK_EQ(2 + 2, 5, "arithmetic");
    FAIL() << "no exception";
  } catch (const CheckError& error) {
    const std::string text = error.what();
    for (const char* part : {"2 + 2 == 5", "4 vs 5", "arithmetic", "core_test.cpp"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  }
  EXPECT_THROW(set_log_level("loud"), ConfigError);
}

TEST(Memory, ResidentBytesGrowWithTouchedPages) {
  const size_t before = process_resident_bytes();
  if (before == 0) GTEST_SKIP() << "this system does not tell";
  constexpr size_t kBytes = size_t{64} << 20;
  Memory memory;
  const auto block = memory.allocate(kBytes, Category::Other);
  std::memset(block.get(), 1, kBytes);
  // Pages of libraries count less as other processes come to share them.
  EXPECT_GE(process_resident_bytes(), before + kBytes / 10 * 9);
}

}  // namespace
}  // namespace sixfold::test
