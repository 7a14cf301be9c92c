// Whether the emulation of warps and blocks finds what would go wrong on a GPU, and multiplies as the PTX ISA says.
#include <gtest/gtest.h>

#include "kernels/cuda/warp_block.h"

namespace sixfold::kernels::cuda {
namespace {

constexpr size_t kBytes = 4096;

/// Warp 0 writes, then all warps read.
void hand_over(bool sync) {
  EmulatedShared shared(kBytes);
  Block<2> block(shared);
  block.store_16(0, block.shared(), Chunk{});
  if (sync) block.sync();
  block.each_warp([&](const Warp& warp) {
    float values[4];
    warp.load(reinterpret_cast<const float*>(block.shared()), values);
  });
}

TEST(CudaWarpBlock, AForgottenBarrierIsAnError) {
  EXPECT_NO_THROW(hand_over(true));
  EXPECT_THROW(hand_over(false), CheckError);
}

TEST(CudaWarpBlock, WritingWhatAnotherWarpStillReadsIsAnError) {
  EmulatedShared shared(kBytes);
  Block<2> block(shared);
  alignas(16) const float source[4] = {};
  float values[4];
  block.each_warp([&](const Warp& warp) { warp.load(reinterpret_cast<const float*>(block.shared()), values); });
  EXPECT_THROW(block.copy_async_16(0, block.shared(), source, 16), CheckError);
  block.sync();
  EXPECT_NO_THROW(block.copy_async_16(0, block.shared(), source, 16));
}

TEST(CudaWarpBlock, CopiesArriveWhenTheyAreAwaited) {
  EmulatedShared shared(kBytes);
  Block<1> block(shared);
  alignas(16) const float source[4] = {1, 2, 3, 4};
  float values[4];
  const auto read = [&] {
    block.each_warp([&](const Warp& warp) { warp.load(reinterpret_cast<const float*>(block.shared()), values); });
  };
  block.copy_async_16(0, block.shared(), source, 8);
  read();
  EXPECT_TRUE(std::isnan(values[0]));
  block.await_copies();
  read();
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(values[2], 0);  // beyond the valid bytes
}

TEST(CudaWarpBlock, AddressesBesideSharedMemoryAreErrors) {
  EmulatedShared shared(kBytes);
  Block<1> block(shared);
  EXPECT_THROW(block.store_16(0, block.shared() + 4, Chunk{}), CheckError);
  EXPECT_THROW(block.store_16(0, block.shared() + kBytes, Chunk{}), CheckError);
}

/// Fragments filled by the formulas of the PTX ISA, section "Matrix fragments for mma.m16n8k16": element i of A is in
/// row groupID, of i in {2, 3, 6, 7} in row groupID + 8, and in column 2 threadID_in_group + (i & 1), from i = 4 on 8
/// further; of B in row 2 threadID_in_group + (i & 1), from i = 2 on 8 further, and in column groupID; of C in row
/// groupID, from i = 2 on 8 further, and in column 2 threadID_in_group + (i & 1).
TEST(CudaWarpBlock, MmaMultipliesFragmentsOfThePtxIsa) {
  const auto a_at = [](int row, int column) { return static_cast<float>(row * 16 + column - 100); };  // all exact
  const auto b_at = [](int row, int column) { return static_cast<float>((row - 3) * (column + 2)); };
  PerLane<uint32_t[4]> a, b;
  PerLane<float[4]> c;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, in_group = lane & 3;
    for (int r = 0; r < 4; ++r) {
      const int row = r == 1 || r == 3 ? group + 8 : group, column = in_group * 2 + (r >= 2 ? 8 : 0);
      a[lane][r] = pack_bf16(a_at(row, column), a_at(row, column + 1));
      c[lane][r] = static_cast<float>(r);
    }
    for (int r = 0; r < 2; ++r) {
      const int row = in_group * 2 + (r >= 1 ? 8 : 0);
      b[lane][2 + r] = pack_bf16(b_at(row, group), b_at(row + 1, group));
    }
  }
  EmulatedShared shared(kBytes);
  Warp(0, shared).mma_bf16(c, a, b, 2);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = (lane >> 2) + (i >= 2 ? 8 : 0), column = (lane & 3) * 2 + (i & 1);
      float expected = static_cast<float>(i);
      for (int k = 0; k < 16; ++k) expected += a_at(row, k) * b_at(k, column);
      EXPECT_EQ(c[lane][i], expected) << "lane " << lane << ", element " << i;
    }
}

/// Matrix j holds 64 j + 8 row + column; lanes name their rows in the order of the ISA.
TEST(CudaWarpBlock, LdmatrixHandsOutRowsOrColumns) {
  EmulatedShared shared(kBytes);
  auto* elements = reinterpret_cast<uint16_t*>(shared.data());
  for (uint16_t i = 0; i < 256; ++i) elements[i] = i;
  PerLane<const void*> rows;
  for (int lane = 0; lane < 32; ++lane) rows[lane] = elements + 8 * lane;
  PerLane<uint32_t[4]> straight, transposed;
  const Warp warp(0, shared);
  warp.ldmatrix_x4<false>(rows, straight);
  warp.ldmatrix_x4<true>(rows, transposed);
  EXPECT_EQ(straight[0][0], 0u | 1u << 16);
  EXPECT_EQ(straight[5][0], 10u | 11u << 16);  // row 1, columns 2 and 3
  EXPECT_EQ(straight[31][3], 254u | 255u << 16);
  EXPECT_EQ(transposed[0][0], 0u | 8u << 16);
  EXPECT_EQ(transposed[5][1], 81u | 89u << 16);  // of matrix 1 rows 2 and 3, column 1
}

}  // namespace
}  // namespace sixfold::kernels::cuda
