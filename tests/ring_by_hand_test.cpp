// The ring that the interpreter is measured against on a GPU gives exact sums, launch after launch, in place and not.
#include "tests/gpu/ring_by_hand.h"

#include "tests/harness.h"
#include "tests/host_peer.h"

namespace sixfold::test {
namespace {

TEST(RingByHand, SumsAreExact) {
  const Deadline deadline(60);
  constexpr uint32_t kBlocks = 2, kSlotElements = 16;
  for (uint32_t n = 2; n <= 5; ++n) {
    std::vector<float> slots(size_t{n} * kBlocks * kRingSlots * kSlotElements);
    std::vector<uint64_t> flags(size_t{n} * kBlocks * 2 * comm::kFlagStride);
    HostKernelControl control;
    uint64_t first_message = 0;
    for (size_t count : {1, 64, 1003, 3000}) {
      const bool in_place = count == 1003;
      std::vector<std::vector<float>> in(n), out(n, std::vector<float>(count));
      RingArguments a;
      for (uint32_t rank = 0; rank < n; ++rank) {
        for (size_t i = 0; i < count; ++i) in[rank].push_back(static_cast<float>(i % 100 + rank));
        a.input[rank] = in[rank].data();
        a.output[rank] = in_place ? in[rank].data() : out[rank].data();
      }
      a.slots = slots.data();
      a.flags = flags.data();
      a.count = count;
      a.first_message = first_message;
      a.num_ranks = n;
      a.slot_elements = kSlotElements;
      first_message += ring_messages(a, kBlocks);
      run_blocks(static_cast<int>(n * kBlocks), [&](int i) {
        const auto block = static_cast<uint32_t>(i);
        PeerPlatform platform(control, block / kBlocks);
        EXPECT_TRUE(ring_by_hand(platform, a, block / kBlocks, block % kBlocks, kBlocks));
      });
      for (uint32_t rank = 0; rank < n; ++rank) {
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(a.output[rank][i], static_cast<float>(n * (i % 100) + n * (n - 1) / 2)) << n << " " << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sixfold::test
