// Emulated links: a port carries one slice at a time, at its rate. Arrivals are compared with one another, so that no
// clock decides: two slices through one port are at least bytes / rate apart, whatever the machine does meanwhile.
#include "runtime/comm/host/pacer.h"

#include "tests/harness.h"

namespace sixfold::comm {
namespace {

/// One rank's Pacer, on its own memory.
class OwnRegions final : public RegionProvider {
 public:
  std::shared_ptr<SharedRegion> open(const std::string&, size_t bytes, const std::vector<int>&) override {
    return SharedRegion::anonymous(bytes);
  }
};

constexpr uint64_t kSecond = 1000000000;

// Rates so slow (1 and 0.1 bytes a second) that the time between two calls does not count.
Profile slow_links(int num_rails = 1) {
  Profile profile;
  profile.intra.bytes_per_s = 1;
  profile.inter.bytes_per_s = 0.1;
  profile.reduce_bytes_per_s = 1;
  profile.num_rails = num_rails;
  return profile;
}

TEST(Pacer, SlicesQueueAtThePort) {
  OwnRegions regions;
  Pacer pacer(regions, Topology::parse("1x3", 3), slow_links());
  const uint64_t first = pacer.send(0, 1, 1000);
  EXPECT_EQ(pacer.send(0, 1, 500), first + 500 * kSecond);
  EXPECT_EQ(pacer.send(0, 2, 100), first + 600 * kSecond) << "the egress of rank 0 is taken until then";
  EXPECT_EQ(pacer.send(2, 1, 200), first + 700 * kSecond) << "the ingress of rank 1 is taken for 1500 s";
}

TEST(Pacer, DirectionsAndPairsAreIndependent) {
  OwnRegions regions;
  Pacer pacer(regions, Topology::parse("1x4", 4), slow_links());
  const uint64_t one = pacer.send(0, 1, 1000), back = pacer.send(1, 0, 1000), other = pacer.send(2, 3, 1000);
  EXPECT_LT(back - one, kSecond);
  EXPECT_LT(other - one, kSecond);
}

TEST(Pacer, ANodeHasOneNetworkCard) {
  OwnRegions regions;
  Pacer pacer(regions, Topology::parse("2x2", 4), slow_links());
  const uint64_t first = pacer.send(0, 2, 100);
  EXPECT_EQ(pacer.send(1, 3, 100), first + 1000 * kSecond);
  EXPECT_LT(pacer.send(0, 1, 100), first) << "inside the node nothing is in the way";
}

TEST(Pacer, OrOneForEachRail) {
  OwnRegions regions;
  Pacer pacer(regions, Topology::parse("2x2", 4), slow_links(2));
  const uint64_t first = pacer.send(0, 2, 100);
  EXPECT_LT(pacer.send(1, 3, 100) - first, kSecond);
}

// 256 KiB at 0.01 GB/s are 26 ms; nothing but the pace makes a loaded machine slower.
TEST(Pacer, HoldsSlicesBack) {
  WorldOptions options;
  options.topology = "2x1";
  options.emulate_links = "intra=1,inter=0.01";
  test::run_ranks(
      2,
      [](World& world) {
        std::vector<std::byte> x(256 * 1024);
        const Buf buf(x.data(), x.size(), DType::U8);
        const uint64_t start = monotonic_ns();  // before the barrier: the other rank may leave it first
        world.group().barrier();
        if (world.rank() == 0) {
          world.group().send(buf, 1).wait();
        } else {
          world.group().recv(buf, 0).wait();
          EXPECT_GE(monotonic_ns() - start, 25 * kSecond / 1000);
        }
        world.group().barrier();
      },
      options);
}

}  // namespace
}  // namespace sixfold::comm
