// What a queue of a GPU does on the host: places for bytes on their way there, and its refusal where there is none.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/staging_ring.h"
#include "kernels/queue.h"
#include "runtime/core/device.h"

namespace sixfold::test {
namespace {

using kernels::cuda::StagingRing;

/// Takes a piece that is busy until its number; gives its offset, and adds what was waited for.
size_t take(StagingRing<int>& ring, size_t bytes, int number, std::vector<int>& waited) {
  const size_t offset = ring.take(bytes, [&](int mark) { waited.push_back(mark); });
  ring.busy_until(number);
  return offset;
}

TEST(StagingRing, WaitsForThePiecesThatLayThere) {
  StagingRing<int> ring(256);
  std::vector<int> waited;
  EXPECT_EQ(take(ring, 100, 0, waited), 0u);   // to 128
  EXPECT_EQ(take(ring, 1, 1, waited), 128u);   // to 192
  EXPECT_EQ(take(ring, 64, 2, waited), 192u);  // to the end
  EXPECT_TRUE(waited.empty());
  EXPECT_EQ(take(ring, 64, 3, waited), 0u);
  EXPECT_EQ(waited, (std::vector{0}));
  EXPECT_EQ(take(ring, 64, 4, waited), 64u);  // 0 is over: nobody waits for it again
  EXPECT_EQ(waited, (std::vector{0}));
  EXPECT_EQ(take(ring, 200, 5, waited), 0u);  // over 1 and 2, which came before 3 and 4 that also lie there
  EXPECT_EQ(waited, (std::vector{0, 4}));
  EXPECT_EQ(take(ring, 256, 6, waited), 0u);
  EXPECT_EQ(waited, (std::vector{0, 4, 5}));
  EXPECT_THROW(ring.take(257, [](int) {}), CheckError);
}

TEST(StagingRing, KeepsNoMoreMarksThanItSays) {
  StagingRing<int> ring(size_t{1} << 20);
  std::vector<int> waited;
  const int num_pieces = static_cast<int>(StagingRing<int>::kMaxPieces);
  for (int i = 0; i < num_pieces; ++i) take(ring, 64, i, waited);
  EXPECT_TRUE(waited.empty());
  take(ring, 64, num_pieces, waited);
  take(ring, 64, num_pieces + 1, waited);
  EXPECT_EQ(waited, (std::vector{0, 1}));
}

TEST(CudaQueue, IsRefusedWhereThereIsNoGpu) {
  const CudaProbe probe = probe_cuda();
  if (probe.num_devices > 0) GTEST_SKIP() << "there is a GPU";
  try {
    kernels::make_cuda_queue({DeviceType::Cuda, 0});
    FAIL() << "a queue without a GPU";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(probe.problem), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sixfold::test
