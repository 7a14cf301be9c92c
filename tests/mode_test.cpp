// Which mode a group of ranks on GPUs runs in: placements made by hand.
#include "runtime/comm/cuda/mode.h"

#include "tests/refusal.h"

namespace sixfold::test {
namespace {

using comm::GpuId;
using comm::GpuMode;
using comm::GpuPlace;

GpuId gpu(int number) {
  GpuId id;
  id.bytes[0] = static_cast<uint8_t>(number);
  return id;
}

GpuPlace place(int host, int process, int number, const std::vector<int>& peers = {}) {
  GpuPlace p{host, process, gpu(number), {}, false};
  for (int peer : peers) p.peers.push_back(gpu(peer));
  return p;
}

std::vector<GpuPlace> with_nccl(std::vector<GpuPlace> places) {
  for (GpuPlace& p : places) p.has_nccl = true;
  return places;
}

const std::vector<GpuPlace> kOneRank = {place(0, 0, 1)};
const std::vector<GpuPlace> kThreadsOnOneGpu = {place(0, 0, 1, {2}), place(0, 0, 1, {2}), place(0, 0, 1, {2})};
const std::vector<GpuPlace> kProcessesOnOneGpu = {place(0, 0, 1), place(0, 1, 1)};
const std::vector<GpuPlace> kNvlink = {place(0, 0, 1, {2, 3}), place(0, 1, 2, {3, 1}), place(0, 2, 3, {1, 2})};
const std::vector<GpuPlace> kThreadsWithGpuEach = {place(0, 0, 1, {2}), place(0, 0, 2, {1})};
// Ranks 0 and 1 on one GPU, 2 and 3 on another: processes, and threads.
const std::vector<GpuPlace> kTwoAGpu = {place(0, 0, 1, {2}), place(0, 1, 1, {2}), place(0, 2, 2, {1}),
                                        place(0, 3, 2, {1})};
const std::vector<GpuPlace> kThreadsTwoAGpu = {place(0, 0, 1, {2}), place(0, 0, 2, {1}), place(0, 0, 1, {2}),
                                               place(0, 0, 2, {1})};
const std::vector<GpuPlace> kOneWay = {place(0, 0, 1, {2}), place(0, 1, 2)};
const std::vector<GpuPlace> kSharedWithoutPeers = {place(0, 0, 1), place(0, 1, 1), place(0, 2, 2)};
const std::vector<GpuPlace> kTwoHosts = {place(0, 0, 1, {2}), place(0, 1, 2, {1}), place(1, 2, 3, {4}),
                                         place(1, 3, 4, {3})};
const std::vector<GpuPlace> kTwoHostsShared = {place(0, 0, 1), place(0, 1, 1), place(1, 2, 2)};
// A process tree that was copied between hosts: what looks like one GPU is none where hosts differ.
const std::vector<GpuPlace> kSameNameElsewhere = {place(0, 0, 1), place(1, 1, 1)};

std::vector<GpuPlace> only_first_has_nccl() {
  std::vector<GpuPlace> places = kTwoHosts;
  places[0].has_nccl = true;
  return places;
}

TEST(Mode, FollowsFromThePlaces) {
  struct Row {
    std::string name;
    std::vector<GpuPlace> places;
    GpuMode mode;
    std::vector<std::string> reason;
  };
  const Row rows[] = {
      {"one rank", kOneRank, GpuMode::Shared, {"one rank"}},
      {"threads, one GPU", kThreadsOnOneGpu, GpuMode::Shared, {"one process", "one GPU"}},
      {"the same with NCCL", with_nccl(kThreadsOnOneGpu), GpuMode::Shared, {}},
      {"processes, one GPU", kProcessesOnOneGpu, GpuMode::Stepped, {"ranks 0 and 1 share a GPU"}},
      {"processes, one GPU, NCCL", with_nccl(kProcessesOnOneGpu), GpuMode::Stepped, {}},
      {"NVLink", kNvlink, GpuMode::Peer, {"a GPU for each rank"}},
      {"NVLink and NCCL", with_nccl(kNvlink), GpuMode::Peer, {}},
      {"threads, a GPU each", kThreadsWithGpuEach, GpuMode::Peer, {}},
      {"two processes a GPU", kTwoAGpu, GpuMode::Stepped, {"ranks 0 and 1 share a GPU"}},
      {"two threads a GPU", kThreadsTwoAGpu, GpuMode::Stepped, {"ranks 0 and 2 share a GPU"}},
      {"access one way", kOneWay, GpuMode::Staged, {"rank 1 does not reach", "rank 0", "finds no NCCL"}},
      {"access one way, NCCL", with_nccl(kOneWay), GpuMode::Nccl, {"a GPU for each rank", "rank 1 does not reach"}},
      {"no access, shared", kSharedWithoutPeers, GpuMode::Staged, {"rank 0 does not reach", "rank 2", "0 and 1 share"}},
      {"no access, shared, NCCL", with_nccl(kSharedWithoutPeers), GpuMode::Staged, {"0 and 1 share"}},
      {"two hosts", kTwoHosts, GpuMode::Staged, {"rank 2 is on another host", "rank 0 finds no NCCL"}},
      {"two hosts, NCCL", with_nccl(kTwoHosts), GpuMode::Nccl, {"rank 2 is on another host"}},
      {"two hosts, NCCL on one", only_first_has_nccl(), GpuMode::Staged, {"rank 1 finds no NCCL"}},
      {"two hosts, shared, NCCL", with_nccl(kTwoHostsShared), GpuMode::Staged, {"0 and 1 share a GPU"}},
      {"one name on two hosts", with_nccl(kSameNameElsewhere), GpuMode::Nccl, {"rank 1 is on another host"}},
  };
  for (const Row& row : rows) {
    const comm::ModeChoice choice = comm::choose_mode(row.places, GpuMode::Auto);
    EXPECT_EQ(comm::gpu_mode_name(choice.mode), comm::gpu_mode_name(row.mode)) << row.name << ": " << choice.reason;
    expect_mentions(choice.reason, row.reason);
  }
}

TEST(Mode, AskedForIsTakenOrRefusedWithWhatIsPossible) {
  EXPECT_EQ(comm::choose_mode(kThreadsOnOneGpu, GpuMode::Staged).mode, GpuMode::Staged);
  EXPECT_EQ(comm::choose_mode(kThreadsOnOneGpu, GpuMode::Stepped).mode, GpuMode::Stepped);
  EXPECT_EQ(comm::choose_mode(kNvlink, GpuMode::Stepped).mode, GpuMode::Stepped);
  EXPECT_EQ(comm::choose_mode(with_nccl(kNvlink), GpuMode::Nccl).mode, GpuMode::Nccl);
  const auto refused = [](const std::vector<GpuPlace>& places, GpuMode mode) {
    return refusal([&] { comm::choose_mode(places, mode); });
  };
  expect_mentions(
      refused(kProcessesOnOneGpu, GpuMode::Shared),
      {"--gpu-mode shared", "rank 1 is another process than rank 0", "(allowed here: auto, stepped, staged)"});
  expect_mentions(refused(kThreadsWithGpuEach, GpuMode::Shared),
                  {"rank 1 is on another GPU than rank 0", "(allowed here: auto, peer, stepped, staged)"});
  expect_mentions(refused(kThreadsOnOneGpu, GpuMode::Peer),
                  {"--gpu-mode peer", "ranks 0 and 1 share a GPU", "(allowed here: auto, shared, stepped, staged)"});
  expect_mentions(refused(kTwoHosts, GpuMode::Stepped),
                  {"--gpu-mode stepped", "rank 2 is on another host than rank 0", "(allowed here: auto, staged)"});
  expect_mentions(refused(with_nccl(kThreadsOnOneGpu), GpuMode::Nccl),
                  {"--comm nccl", "ranks 0 and 1 share a GPU", "(allowed here: own)"});
  expect_mentions(refused(kNvlink, GpuMode::Nccl), {"--comm nccl", "rank 0 finds no NCCL"});
}

TEST(Mode, Names) {
  for (const std::string name : {"auto", "shared", "peer", "stepped", "staged"}) {
    EXPECT_EQ(comm::gpu_mode_name(comm::parse_gpu_mode(name)), name);
  }
  expect_mentions(refusal([] { comm::parse_gpu_mode("fast"); }),
                  {"--gpu-mode fast: allowed are auto, shared, peer, stepped, staged"});
  EXPECT_NE(refusal([] { comm::parse_gpu_mode("nccl"); }), "");  // by --comm nccl
}

}  // namespace
}  // namespace sixfold::test
