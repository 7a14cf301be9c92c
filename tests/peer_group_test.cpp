// Ranks that reach one another's memory, each with a launch of its own or with the host stepping through it. GPUs are
// threads that run the kernels' own code (host_peer.h).
#include <thread>

#include "tests/harness.h"
#include "tests/host_peer.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Buf;
using comm::GpuMode;
using comm::Primitive;

// Few slots of few elements, so that small counts take many slices and passes.
constexpr comm::PeerShape kSmall{.num_slots = 4,
                                 .slot_bytes = 512,
                                 .max_splits = 2,
                                 .message_splits = 2,
                                 .bytes_per_split = 512,
                                 .stepped_slot_bytes = 1024};

comm::WorldOptions on_peers(int ranks, GpuMode mode, std::shared_ptr<HostPeers> peers = nullptr) {
  comm::WorldOptions options;
  options.gpus = peers ? std::move(peers) : std::make_shared<HostPeers>(ranks, kSmall);
  options.gpu_mode = mode;
  options.timeout_s = 20;
  return options;
}

Buf buf(std::vector<int32_t>& x) {
  return Buf(x.data(), x.size(), DType::I32);
}

class Peers : public testing::TestWithParam<std::tuple<GpuMode, int>> {
 protected:
  GpuMode mode() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
};

// Counts of no element, of less than one for each rank, and of several passes; dtypes and ops take turns. All in one
// World, so that flags go on over many launches.
TEST_P(Peers, EveryPrimitiveAndAlgorithmIsExact) {
  run_ranks(
      ranks(),
      [](comm::World& world) {
        size_t turn = 0;
        for (Primitive primitive : comm::kCollectives) {
          std::vector<Algorithm> algorithms = comm::algorithms_of(primitive);
          algorithms.push_back(Algorithm::Auto);
          for (Algorithm algorithm : algorithms) {
            for (size_t count : {size_t{0}, size_t{1}, size_t{1009}}) {
              CollectiveCase c{primitive, algorithm, count};
              ++turn;
              c.dtype = kAllDTypes[turn % std::size(kAllDTypes)];
              c.op = kAllReduceOps[turn / 2 % std::size(kAllReduceOps)];
              if (!comm::reduces(primitive) || !kernels::reduce_supported(c.dtype, c.op)) c.op = ReduceOp::Sum;
              c.in_place = turn % 3 == 0;
              c.shift = turn % 4 == 0 ? 1 : 0;
              c.root = world.size() - 1;
              EXPECT_EQ(run_case(world.group(), world.memory(), c), "");
            }
          }
        }
      },
      on_peers(ranks(), mode()));
}

INSTANTIATE_TEST_SUITE_P(Modes, Peers,
                         testing::Combine(testing::Values(GpuMode::Peer, GpuMode::Stepped), testing::Range(1, 6)));

class Mode : public testing::TestWithParam<GpuMode> {};

// Every rank has its buffers in place or not as it likes, and links are those of the shape.
TEST_P(Mode, InPlaceOnSomeRanksOnly) {
  run_ranks(
      3,
      [](comm::World& world) {
        for (int round = 0; round < 3; ++round) {
          for (Primitive primitive : comm::kCollectives) {
            for (Algorithm algorithm : comm::algorithms_of(primitive)) {
              CollectiveCase c{primitive, algorithm, 301};
              c.in_place = (world.rank() + round) % 3 == 0;
              EXPECT_EQ(run_case(world.group(), world.memory(), c), "");
            }
          }
        }
      },
      on_peers(3, GetParam()));
}

TEST_P(Mode, BlocksOfDifferentSize) {
  run_ranks(
      3,
      [](comm::World& world) {
        const int rank = world.rank();
        const auto r = static_cast<size_t>(rank);
        // Rank r sends r + 1 elements to everyone, each of value 10 r + receiver; then once more.
        std::vector<int32_t> in, out(6), expected = {rank, 10 + rank, 10 + rank, 20 + rank, 20 + rank, 20 + rank};
        for (int to = 0; to < 3; ++to) in.insert(in.end(), r + 1, 10 * rank + to);
        const std::vector<size_t> send(3, r + 1), receive = {1, 2, 3};
        comm::Work first = world.group().all_to_all(buf(in), buf(out), send, receive);
        std::vector<int32_t> again(6);
        comm::Work second = world.group().all_to_all(buf(in), buf(again), send, receive);
        second.wait();
        first.wait();
        EXPECT_EQ(out, expected);
        EXPECT_EQ(again, expected);

        const std::vector<size_t> counts = {0, 700, 3};
        std::vector<int32_t> own(counts[r], rank), all(703), gathered(700, 1);
        gathered.insert(gathered.end(), 3, 2);
        world.group().all_gather(buf(own), buf(all), counts).wait();
        EXPECT_EQ(all, gathered);
        std::vector<int32_t> sum(counts[r]);
        world.group().reduce_scatter(buf(all), buf(sum), counts, ReduceOp::Sum).wait();
        EXPECT_EQ(sum, std::vector<int32_t>(counts[r], 3 * rank));
      },
      on_peers(3, GetParam()));
}

// Longer than a link holds, shorter, empty; to the neighbour and to oneself; both lanes, beside a collective; several
// of a lane under way, in order.
TEST_P(Mode, Messages) {
  run_ranks(
      3,
      [](comm::World& world) {
        const int rank = world.rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
        for (size_t count : {size_t{0}, size_t{5}, size_t{5000}}) {
          std::vector<int32_t> sent(count, rank), received(count), own(count);
          comm::Options other_lane;
          other_lane.lane = 1;
          std::vector<int32_t> sum = {rank};
          comm::Work reduced = world.group().all_reduce(buf(sum), buf(sum), ReduceOp::Sum);
          const comm::P2p exchange[] = {{comm::P2p::Kind::Send, buf(sent), next, {}},
                                        {comm::P2p::Kind::Recv, buf(received), before, {}},
                                        {comm::P2p::Kind::Send, buf(sent), rank, other_lane},
                                        {comm::P2p::Kind::Recv, buf(own), rank, other_lane}};
          world.group().batch(exchange).wait();
          reduced.wait();
          EXPECT_EQ(received, std::vector<int32_t>(count, before));
          EXPECT_EQ(own, sent);
          EXPECT_EQ(sum, std::vector<int32_t>{3});
        }
        std::vector<std::vector<int32_t>> out(6, std::vector<int32_t>(40)), in = out;
        std::vector<comm::Work> works;
        for (size_t i = 0; i < in.size(); ++i) {
          works.push_back(world.group().recv(buf(in[i]), before));
          out[i].assign(40, 10 * rank + static_cast<int>(i));
          works.push_back(world.group().send(buf(out[i]), next));
        }
        for (comm::Work& work : works) work.wait();
        for (size_t i = 0; i < in.size(); ++i) {
          EXPECT_EQ(in[i], std::vector<int32_t>(40, 10 * before + static_cast<int>(i)));
        }
      },
      on_peers(3, GetParam()));
}

// Groups come and go in different order on the ranks, and what they had in the arenas comes back clean: the arenas hold
// a few of them only.
TEST_P(Mode, SplitsComeAndGo) {
  const auto peers = std::make_shared<HostPeers>(4, kSmall, 20, size_t{2} << 20);
  run_ranks(
      4,
      [](comm::World& world) {
        for (int round = 0; round < 12; ++round) {
          comm::Communicator pair = world.group().split(world.rank() % 2, -world.rank());
          auto all = std::make_unique<comm::Communicator>(world.group().split(0, world.rank()));
          std::vector<int32_t> own = {world.rank()}, of_pair(2), of_all(300, 1);
          pair.all_gather(buf(own), buf(of_pair)).wait();
          EXPECT_EQ(of_pair, (std::vector<int32_t>{2 + world.rank() % 2, world.rank() % 2}));
          comm::Options options;
          options.algorithm = Algorithm::Ring;
          all->all_reduce(buf(of_all), buf(of_all), ReduceOp::Sum, options).wait();
          EXPECT_EQ(of_all, std::vector<int32_t>(300, 4));
          if (world.rank() == round % 4) all.reset();
          world.group().barrier();
        }
      },
      on_peers(4, GetParam(), peers));
  const Deadline deadline(10);
  for (int rank = 0; rank < 4; ++rank) {
    while (peers->peer(rank).arena().used_bytes() > 0) std::this_thread::yield();  // until all is zero again
  }
}

// Two groups under way at once, over and over.
TEST_P(Mode, GroupsSideBySide) {
  run_ranks(
      3,
      [](comm::World& world) {
        comm::Communicator first = world.open_group(comm::BackendKind::Own, false);
        comm::Communicator second = world.open_group(comm::BackendKind::Own, false);
        for (int round = 0; round < 15; ++round) {
          std::vector<int32_t> a(400, 1), b(10, 2);
          comm::Work x = first.all_reduce(buf(a), buf(a), ReduceOp::Sum);
          comm::Work y = second.all_reduce(buf(b), buf(b), ReduceOp::Sum);
          (round % 2 == 0 ? x : y).wait();
          (round % 2 == 0 ? y : x).wait();
          EXPECT_EQ(a, std::vector<int32_t>(400, 3));
          EXPECT_EQ(b, std::vector<int32_t>(10, 6));
        }
      },
      on_peers(3, GetParam()));
}

TEST_P(Mode, StreamsFollowWhenTheirRankWaits) {
  run_ranks(
      2,
      [&](comm::World& world) {
        int stream = 0;
        std::vector<int32_t> x(10, 1);
        comm::Options options;
        options.stream = &stream;
        options.tag = "in stream";
        comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options);
        EXPECT_EQ(stream, 0);
        work.wait();
        work.wait();
        // The rank goes on with its kernel under way; where the host steps, all is done by then.
        EXPECT_EQ(stream, GetParam() == GpuMode::Peer ? 1 : 0);
        EXPECT_EQ(exposed_seconds(world, "in stream", comm::CommPhase::Outside), HostClock::kTick);
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();  // follows it
        EXPECT_EQ(x, std::vector<int32_t>(10, 4));
      },
      on_peers(2, GetParam()));
}

TEST_P(Mode, SentBytesAreThoseOfTheLists) {
  run_ranks(
      4,
      [](comm::World& world) {
        std::vector<int32_t> x(1000, 1);
        comm::Options options;
        options.algorithm = Algorithm::Ring;
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options).wait();
        for (const comm::CommRow& row : world.comm_table().rows()) {
          if (row.primitive != Primitive::AllReduce || row.algorithm != Algorithm::Ring) continue;
          EXPECT_EQ(row.sent_bytes, 6000u);  // 2 (N-1)/N S
          EXPECT_EQ(row.predicted_sent_bytes, 6000.0);
        }
      },
      on_peers(4, GetParam()));
}

std::string failure_of(int ranks, const std::function<void(comm::World&)>& body, comm::WorldOptions options) {
  try {
    run_ranks(ranks, body, std::move(options), 30);
  } catch (const CommError& error) {
    return error.what();
  }
  return "(none)";
}

TEST_P(Mode, MismatchNamesBothSides) {
  const auto peers = std::make_shared<HostPeers>(3, kSmall);
  const std::string text = failure_of(
      3,
      [](comm::World& world) {
        std::vector<int32_t> x(world.rank() == 2 ? 7 : 8);
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
      },
      on_peers(3, GetParam(), peers));
  EXPECT_NE(text.find("count 7"), std::string::npos) << text;
  EXPECT_NE(text.find("count 8"), std::string::npos) << text;
  EXPECT_NE(text.find("all_reduce #0"), std::string::npos) << text;
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(peers->peer(rank).aborted()) << rank;
}

TEST_P(Mode, MessagesOfDifferentSizeNameBothSides) {
  const std::string text = failure_of(
      2,
      [](comm::World& world) {
        std::vector<int32_t> x(world.rank() == 0 ? 3 : 4);
        if (world.rank() == 0) world.group().send(buf(x), 1).wait();
        if (world.rank() == 1) world.group().recv(buf(x), 0).wait();
        world.group().barrier();
      },
      on_peers(2, GetParam()));
  EXPECT_NE(text.find("count 3"), std::string::npos) << text;
  EXPECT_NE(text.find("count 4"), std::string::npos) << text;
}

// The first operation of a shape, which tells where links are, and a later one, whose kernel is under way.
TEST_P(Mode, ARankThatNeverComesIsNamed) {
  for (bool warm : {false, true}) {
    comm::WorldOptions options = on_peers(3, GetParam());
    options.timeout_s = 0.5;
    const std::string text = failure_of(
        3,
        [&](comm::World& world) {
          world.group().barrier();
          std::vector<int32_t> x(8);
          if (warm) world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
          if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1300));
          world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
        },
        options);
    EXPECT_NE(text.find("have not entered it: 1"), std::string::npos) << text;
    EXPECT_NE(text.find(warm ? "all_reduce #1" : "all_reduce #0"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Mode, testing::Values(GpuMode::Peer, GpuMode::Stepped));

// Nobody waits on the host, so it is the kernel that gives up, and says where.
TEST(PeerGroup, AKernelThatGivesUpSaysWhere) {
  const auto peers = std::make_shared<HostPeers>(2, kSmall, 0.3);
  const std::string text = failure_of(
      2,
      [](comm::World& world) {
        std::vector<int32_t> x(8);
        comm::Options options;
        options.algorithm = Algorithm::Ring;
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options).wait();
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(800));
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options).wait();
      },
      on_peers(2, GpuMode::Peer, peers));
  EXPECT_NE(text.find("rank 0 waited in a kernel for a message: channel 0"), std::string::npos) << text;
  EXPECT_NE(text.find("have not entered it: 1"), std::string::npos) << text;
}

// Clean pieces hold zeroes again, and come back only when nobody else may write to them.
TEST(PeerArena, RetiredPiecesComeBackCleanOnceUnused) {
  HostPeer device(kSmall, 1, 1 << 20);
  comm::PeerArena& arena = device.arena();
  const auto clean = comm::PeerArena::Kind::Clean;
  std::vector<comm::PeerArena::Piece> pieces;
  pieces.push_back(arena.take(300 << 10, clean));
  std::byte* const place = pieces.back().data();
  std::memset(place, 7, 300 << 10);
  bool is_unused = false;
  arena.retire(std::move(pieces), [&] { return is_unused; });
  EXPECT_THROW(arena.take(300 << 10, clean), CommError);
  is_unused = true;
  while (arena.used_bytes() > 0) std::this_thread::yield();
  const comm::PeerArena::Piece again = arena.take(300 << 10, clean);
  EXPECT_EQ(again.data(), place);
  EXPECT_EQ(std::vector<std::byte>(place, place + (300 << 10)), std::vector<std::byte>(300 << 10));
}

}  // namespace
}  // namespace sixfold::test
