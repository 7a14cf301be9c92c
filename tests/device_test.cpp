// --device auto|cpu|cuda, and the arena that device memory is handed out of.
#include "runtime/core/device.h"

#include <algorithm>
#include <map>
#include <random>

#include "runtime/core/arena.h"
#include "tests/refusal.h"

namespace sixfold::test {
namespace {

TEST(Device, AutoTakesAGpuOrSaysWhyNot) {
  EXPECT_EQ(choose_device(DeviceChoice::Auto, {2, ""}).type, DeviceType::Cuda);
  EXPECT_EQ(choose_device(DeviceChoice::Cpu, {2, ""}).type, DeviceType::Cpu);
  testing::internal::CaptureStderr();
  EXPECT_EQ(choose_device(DeviceChoice::Auto, {0, "no driver"}).type, DeviceType::Cpu);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  expect_mentions(log, {"no driver", "CPU"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(choose_device(DeviceChoice::Cpu, {0, "no driver"}).type, DeviceType::Cpu);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Device, CudaThatIsNotThereIsRefused) {
  EXPECT_EQ(choose_device(DeviceChoice::Cuda, {1, ""}).type, DeviceType::Cuda);
  expect_mentions(refusal([] {
                    choose_device(DeviceChoice::Cuda, {0, "no driver"});
                  }),
                  {"--device cuda", "no driver", "auto, cpu"});
  expect_mentions(refusal([] { parse_device_choice("gpu"); }), {"--device gpu", "auto, cpu, cuda"});
  EXPECT_EQ(parse_device_choice("auto"), DeviceChoice::Auto);
  EXPECT_EQ(parse_device_choice("cpu"), DeviceChoice::Cpu);
  EXPECT_EQ(parse_device_choice("cuda"), DeviceChoice::Cuda);
}

// Whatever this machine has: either devices, or the reason why there are none.
TEST(Device, ProbeSaysWhatThereIs) {
  const CudaProbe probe = probe_cuda();
  EXPECT_GE(probe.num_devices, 0);
  EXPECT_EQ(probe.num_devices > 0, probe.problem.empty()) << probe.problem;
#ifndef SIXFOLD_HAS_CUDA
  EXPECT_EQ(probe.num_devices, 0);
#endif
}

TEST(Arena, PiecesAreAlignedAndComeBack) {
  Arena arena(1024, 256);
  EXPECT_EQ(arena.allocate(1), size_t{0});
  EXPECT_EQ(arena.allocate(257), size_t{256});
  EXPECT_EQ(arena.allocate(256), size_t{768});
  EXPECT_EQ(arena.allocate(1), std::nullopt);
  EXPECT_EQ(arena.used_bytes(), 1024u);
  arena.release(256);
  EXPECT_EQ(arena.largest_free_bytes(), 512u);
  EXPECT_EQ(arena.allocate(513), std::nullopt);
  EXPECT_EQ(arena.allocate(512), size_t{256});
  EXPECT_THROW(arena.release(512), CheckError);
  arena.release(768);
  arena.release(0);
  arena.release(256);  // joins the two beside it
  EXPECT_EQ(arena.largest_free_bytes(), 1024u);
  EXPECT_EQ(arena.used_bytes(), 0u);
  EXPECT_EQ(arena.allocate(SIZE_MAX), std::nullopt);
}

// Pieces of random sizes that come and go never overlap, and all of the arena is one range at the end.
TEST(Arena, RandomPiecesNeverOverlap) {
  constexpr size_t kBytes = 1 << 16;
  Arena arena(kBytes, 64);
  std::mt19937 random(7);
  std::map<size_t, size_t> taken;  // by offset: end
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !taken.empty()) {
      const auto victim = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      arena.release(victim->first);
      taken.erase(victim);
      continue;
    }
    const size_t bytes = 1 + random() % 5000;
    const auto offset = arena.allocate(bytes);
    if (!offset) continue;
    ASSERT_LE(*offset + bytes, kBytes);
    const auto after = taken.lower_bound(*offset);
    ASSERT_TRUE(after == taken.end() || *offset + bytes <= after->first);
    ASSERT_TRUE(after == taken.begin() || std::prev(after)->second <= *offset);
    taken[*offset] = *offset + bytes;
  }
  for (const auto& [offset, end] : taken) arena.release(offset);
  EXPECT_EQ(arena.largest_free_bytes(), kBytes);
}

}  // namespace
}  // namespace sixfold::test
