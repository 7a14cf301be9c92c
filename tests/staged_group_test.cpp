// Collectives on GPUs that go through the host. The GPU's place is taken by threads that copy late (host_staging.h),
// and pieces are small, so that few elements make many.
#include <map>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "runtime/comm/observe/records.h"
#include "tests/staged_fixture.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Buf;
using comm::ConstBuf;
using comm::P2p;
using comm::Primitive;

class Staged : public testing::TestWithParam<int> {};

TEST_P(Staged, EveryPrimitiveAndAlgorithmIsExact) {
  run_ranks(
      GetParam(),
      [](comm::World& world) {
        for (Primitive primitive : comm::kCollectives) {
          for (Algorithm algorithm : comm::algorithms_of(primitive)) {
            for (size_t count : {size_t{0}, size_t{1}, size_t{1009}}) {
              CollectiveCase c{primitive, algorithm, count};
              c.dtype = count % 2 == 0 ? DType::F32 : DType::BF16;
              c.in_place = count == 1 || algorithm == Algorithm::Direct;
              c.root = world.size() - 1;
              EXPECT_EQ(run_staged(world, c), "");
            }
          }
        }
      },
      staged());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Staged, testing::Values(1, 2, 3, 5));

TEST(Staged, EveryDtypeAndOpInAndOutOfPlace) {
  run_ranks(
      3,
      [](comm::World& world) {
        for (Primitive primitive : comm::kCollectives) {
          for (DType dtype : kAllDTypes) {
            for (ReduceOp op : kAllReduceOps) {
              if (!kernels::reduce_supported(dtype, op) || (!comm::reduces(primitive) && op != ReduceOp::Sum)) continue;
              for (bool in_place : {false, true}) {
                CollectiveCase c{primitive, Algorithm::Auto, 701, dtype, op, 1, in_place, 1};
                EXPECT_EQ(run_staged(world, c), "");
              }
            }
          }
        }
      },
      staged());
}

// Pieces so large that peers write to and read from the pinned buffers themselves (LinkOptions).
TEST(Staged, PeersReachThePinnedBuffers) {
  const auto gpus = std::make_shared<HostGpus>();
  gpus->shape.piece_bytes = 128 << 10;
  comm::WorldOptions options = staged(gpus);
  options.links.min_in_place_bytes = options.links.min_lend_bytes = 0;
  run_ranks(
      3,
      [](comm::World& world) {
        for (Primitive primitive : comm::kCollectives) {
          for (Algorithm algorithm : comm::algorithms_of(primitive)) {
            EXPECT_EQ(run_staged(world, {primitive, algorithm, 100003, DType::F32, ReduceOp::Sum, 1}), "");
          }
        }
      },
      options);
}

// Whole on the host, and in pieces.
TEST(Staged, PiecesHaveTheBitsOfDirect) {
  run_ranks(
      4,
      [](comm::World& world) {
        comm::Communicator host = world.open_group(comm::BackendKind::Host, false);
        for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
          for (Primitive primitive : {Primitive::AllReduce, Primitive::Reduce, Primitive::ReduceScatter}) {
            dispatch(dtype, [&](auto element) {
              using T = decltype(element);
              CollectiveCase c{primitive, Algorithm::Direct, 1503, dtype, ReduceOp::Avg};
              c.whole = false;
              CaseBuffers<T> whole(world.memory(), c, world.rank(), 4), cut(world.memory(), c, world.rank(), 4);
              issue(host, c, ConstBuf(whole.in, whole.in_count, dtype), Buf(whole.out, whole.out_count, dtype)).wait();
              issue(world.group(), c, ConstBuf(on_device(cut.in), cut.in_count, dtype),
                    Buf(on_device(cut.out), cut.out_count, dtype))
                  .wait();
              EXPECT_EQ(cut.check(c, world.rank(), 4), "");
              EXPECT_EQ(std::memcmp(cut.out, whole.out, cut.out_count * sizeof(T)), 0) << to_string(c);
            });
          }
        }
      },
      staged());
}

TEST(Staged, BlocksOfDifferentSize) {
  run_ranks(
      3,
      [](comm::World& world) {
        const auto r = static_cast<size_t>(world.rank());
        const std::vector<size_t> counts = {700, 0, 301};  // pieces of 64
        std::vector<int32_t> own(counts[r], world.rank() + 1), all(1001, -1), expected(1001, 3);
        std::fill_n(expected.begin(), 700, 1);
        world.group().all_gather(buf(own), buf(all), counts).wait();
        EXPECT_EQ(all, expected);

        std::vector<int32_t> full(1001), part(counts[r], -1), sums(counts[r]);
        for (size_t i = 0; i < full.size(); ++i) full[i] = static_cast<int32_t>(i) * (world.rank() + 1);
        const size_t begin = r == 2 ? 700 : 0;
        for (size_t i = 0; i < sums.size(); ++i) sums[i] = 6 * static_cast<int32_t>(begin + i);
        world.group().reduce_scatter(buf(full), buf(part), counts, ReduceOp::Sum).wait();
        EXPECT_EQ(part, sums);

        // Rank s sends 100 s + 50 d elements to rank d, each of value 10 s + d: what rank 2 knows of makes 5 pieces,
        // what the others know of 4.
        std::vector<int32_t> sent, received(150 * r + 300, -1), wanted;
        std::vector<size_t> send, receive;
        for (size_t peer = 0; peer < 3; ++peer) {
          send.push_back(100 * r + 50 * peer);
          receive.push_back(100 * peer + 50 * r);
          sent.insert(sent.end(), send.back(), static_cast<int32_t>(10 * r + peer));
          wanted.insert(wanted.end(), receive.back(), static_cast<int32_t>(10 * peer + r));
        }
        world.group().all_to_all(buf(sent), buf(received), send, receive).wait();
        EXPECT_EQ(received, wanted);
        world.group().all_gather(buf(own), buf(all), counts).wait();  // the ranks still agree which part is which
        EXPECT_EQ(all, expected);
      },
      staged());
}

TEST(Staged, MessagesKeepTheirOrderInEachLane) {
  run_ranks(
      3,
      [](comm::World& world) {
        const int rank = world.rank(), next = (rank + 1) % 3, previous = (rank + 2) % 3;
        comm::Options other_lane;
        other_lane.lane = 1;
        constexpr size_t kCounts[] = {1, 1000, 0, 300};  // pieces of 256
        std::vector<std::vector<int32_t>> sent, received;
        for (size_t count : kCounts) {
          sent.emplace_back(count, 10 * rank + static_cast<int32_t>(sent.size()));
          received.emplace_back(count, -1);
        }
        std::vector<comm::Work> works;
        // Those of lane 1 first on one side, last on the other.
        std::vector<int32_t> aside(500, rank), from_aside(500, -1);
        works.push_back(world.group().recv(buf(from_aside), previous, other_lane));
        for (auto& x : received) works.push_back(world.group().recv(buf(x), previous));
        for (auto& x : sent) works.push_back(world.group().send(buf(x), next));
        works.push_back(world.group().send(buf(aside), next, other_lane));
        for (comm::Work& work : works) work.wait();
        for (size_t i = 0; i < received.size(); ++i) {
          EXPECT_EQ(received[i], std::vector<int32_t>(kCounts[i], 10 * previous + static_cast<int32_t>(i)));
        }
        EXPECT_EQ(from_aside, std::vector<int32_t>(500, previous));

        std::vector<int32_t> out(600, rank), in(600, -1), to_self(600, -1);
        const P2p exchange[] = {{P2p::Kind::Send, buf(out), next, {}},
                                {P2p::Kind::Recv, buf(in), previous, {}},
                                {P2p::Kind::Send, buf(out), rank, {}},
                                {P2p::Kind::Recv, buf(to_self), rank, {}}};
        world.group().batch(exchange).wait();
        EXPECT_EQ(in, std::vector<int32_t>(600, previous));
        EXPECT_EQ(to_self, out);
      },
      staged());
}

// Ranks end their copies at different times: neither barriers nor other groups may mind.
TEST(Staged, BarriersSplitsAndGroupsInDifferentOrder) {
  run_ranks(
      4,
      [](comm::World& world) {
        comm::Communicator pair = world.group().split(world.rank() % 2, -world.rank());
        comm::Communicator second = world.open_group(comm::BackendKind::Own, false);
        for (int round = 0; round < 10; ++round) {
          std::vector<int32_t> a(700, 1), b(700, 2), own = {world.rank()}, both(2);
          comm::Communicator& early = world.rank() % 2 == 0 ? world.group() : second;
          comm::Communicator& late = world.rank() % 2 == 0 ? second : world.group();
          comm::Work x = early.all_reduce(buf(a), buf(a), ReduceOp::Sum);
          comm::Work y = late.all_reduce(buf(b), buf(b), ReduceOp::Sum);
          comm::Work z = pair.all_gather(buf(own), buf(both));
          // One rank has its pieces on the way before the barrier, the others most likely have not.
          const double until = comm::seconds_now() + 0.001;
          while (world.rank() == round % 4 && comm::seconds_now() < until) world.progress();
          world.group().barrier();
          z.wait();
          y.wait();
          x.wait();
          EXPECT_EQ(a, std::vector<int32_t>(700, 6));
          EXPECT_EQ(b, std::vector<int32_t>(700, 6));
          EXPECT_EQ(both, world.rank() % 2 == 0 ? (std::vector<int32_t>{2, 0}) : (std::vector<int32_t>{3, 1}));
        }
      },
      staged());
}

// The second reads what the first writes, and nobody has waited in between; the third need not wait for them.
TEST(Staged, OperationsSeeWhatThoseBeforeThemWrite) {
  run_ranks(
      3,
      [](comm::World& world) {
        for (size_t count : {50, 100, 200, 300, 900}) {  // 1 piece, for which there are buffers to spare, to 4
          std::vector<int32_t> x(count, 1), y(count), z(count), other(100, world.rank());
          comm::Work first = world.group().all_reduce(buf(x), buf(y), ReduceOp::Sum);
          comm::Work second = world.group().all_reduce(buf(y), buf(z), ReduceOp::Sum);
          comm::Work third = world.group().all_reduce(buf(other), buf(other), ReduceOp::Max);
          third.wait();
          EXPECT_EQ(other, std::vector<int32_t>(100, 2));
          EXPECT_EQ(z, std::vector<int32_t>(count, 9));
          first.wait();
          second.wait();
        }
      },
      staged());
}

// 1000 elements are 4 pieces, for which there are 3 buffers: three are copied to the host before any comes back, the
// fourth once a buffer is free.
TEST(Staged, PiecesGoSideBySideThroughBuffersPinnedOnce) {
  const auto gpus = std::make_shared<HostGpus>();
  run_ranks(
      1,
      [&](comm::World& world) {
        std::vector<int32_t> x(1000, 1), y(1000);
        world.group().all_reduce(buf(x), buf(y), ReduceOp::Sum).wait();
        EXPECT_EQ(gpus->counts.order.substr(0, 4), "HHHD");
        EXPECT_EQ(gpus->counts.order.size(), 8u);
        EXPECT_EQ(gpus->counts.bytes_to_host, 4000u);
        EXPECT_EQ(gpus->counts.bytes_to_device, 4000u);
        for (int i = 0; i < 50; ++i) world.group().all_reduce(buf(x), buf(y), ReduceOp::Sum).wait();
        EXPECT_EQ(gpus->counts.pins, 1);
      },
      staged(gpus));
  EXPECT_EQ(gpus->counts.unpins, 1);
}

// Nothing is read before the caller's stream has come to the call; the rank goes on once all is handed to the device,
// and the stream then follows the last copies.
TEST(Staged, StreamsAreWaitedForAndFollow) {
  const auto gpus = std::make_shared<HostGpus>();
  run_ranks(
      2,
      [&](comm::World& world) {
        HostStream stream;
        stream.reached = false;
        std::vector<int32_t> x(700, 1);
        comm::Options options;
        options.stream = &stream;
        options.tag = "in stream";
        comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options);
        for (int i = 0; i < 100; ++i) EXPECT_FALSE(work.test());
        EXPECT_EQ(gpus->counts.copies_to_host, 0);
        world.group().barrier();
        std::fill(x.begin(), x.end(), 5);  // what the stream still had to do
        stream.reached.store(true, std::memory_order_release);
        work.wait();
        work.wait();
        EXPECT_EQ(stream.follows.size(), 1u);
        EXPECT_EQ(exposed_seconds(world, "in stream", comm::CommPhase::Outside), HostClock::kTick);
        stream.synchronize();
        EXPECT_EQ(x, std::vector<int32_t>(700, 10));
        world.group().barrier();
      },
      staged(gpus));
}

TEST(Staged, IsCountedAsOneOperation) {
  run_ranks(
      4,
      [](comm::World& world) {
        std::vector<int32_t> x(1024, 1), y(1024);
        comm::Options options;
        options.algorithm = Algorithm::Ring;
        options.tag = "counted";
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options).wait();
        const int next = (world.rank() + 1) % 4, previous = (world.rank() + 3) % 4;
        const P2p exchange[] = {{P2p::Kind::Send, buf(x), next, options}, {P2p::Kind::Recv, buf(y), previous, options}};
        world.group().batch(exchange).wait();
        int num_rows = 0;
        for (const comm::CommRow& row : world.comm_table().rows()) {
          if (row.tag != "counted") continue;
          ++num_rows;
          EXPECT_EQ(row.calls, 1);
          EXPECT_EQ(row.bytes, 4096u);
          const uint64_t sent = row.primitive == Primitive::AllReduce ? 6144
                                : row.primitive == Primitive::Send    ? 4096
                                                                      : 0;
          EXPECT_EQ(row.sent_bytes, sent);  // of a ring, 2 (N-1)/N S
          EXPECT_EQ(row.predicted_sent_bytes, static_cast<double>(sent));
          EXPECT_GT(row.seconds, 0);
        }
        EXPECT_EQ(num_rows, 3);
      },
      staged());
}

// Ranks 0 1 | 2 3 of two nodes, buffers of 4096 bytes in pieces of 1024. A ring leaves its nodes after ranks 1 and 3,
// and sends 2 x 3/4 of the buffer; so do messages to the next rank. What runs on the host beside has a group of its
// own.
TEST(Staged, IsLoggedAsOneOperation) {
  comm::WorldOptions options = staged();
  options.topology = "2x2";
  options.comm_log_bytes = size_t{1} << 20;
  std::vector<comm::RankRecords> ranks;
  run_ranks(
      4,
      [&](comm::World& world) {
        std::vector<int32_t> x(1024, 1), y(1024);
        const int next = (world.rank() + 1) % 4, previous = (world.rank() + 3) % 4;
        world.group().barrier();
        world.comm_log()->clear();  // of how the group was opened
        for (const char* tag : {"first", "second"}) {
          comm::Options with;
          with.algorithm = Algorithm::Ring;
          with.tag = tag;
          with.lane = 1;
          world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, with).wait();
          world.group().barrier();
          const P2p exchange[] = {{P2p::Kind::Send, buf(x), next, with}, {P2p::Kind::Recv, buf(y), previous, with}};
          world.group().batch(exchange).wait();
        }
        auto gathered = comm::gather_records(world, {});
        if (world.rank() == 0) ranks = std::move(gathered);
      },
      options);
  ASSERT_EQ(ranks.size(), 4u);
  for (const comm::RankRecords& rank : ranks) {
    const bool crosses = rank.rank % 2 == 1;
    std::map<std::string, std::vector<const comm::LoggedOperation*>> by_group;
    for (const comm::LoggedOperation& op : rank.operations) by_group[rank.groups[op.group].name].push_back(&op);
    EXPECT_EQ(by_group["world"].size(), 2u);
    for (const comm::LoggedOperation* op : by_group["world"]) EXPECT_EQ(rank.rows[op->row].tag, "barrier");
    const auto& operations = by_group["world.gpu"];
    ASSERT_EQ(operations.size(), 6u);
    for (size_t i = 0; i < operations.size(); ++i) {
      const comm::LoggedOperation& op = *operations[i];
      const comm::LoggedRow& row = rank.rows[op.row];
      const Primitive primitives[] = {Primitive::AllReduce, Primitive::Send, Primitive::Recv};
      SCOPED_TRACE(i);
      EXPECT_EQ(row.tag, i < 3 ? "first" : "second");
      EXPECT_EQ(row.primitive, primitives[i % 3]);
      EXPECT_EQ(row.algorithm, i % 3 == 0 ? Algorithm::Ring : Algorithm::Auto);
      EXPECT_EQ(op.sequence, i / 3);
      EXPECT_EQ(op.peer, i % 3 == 0 ? -1 : (rank.rank + (i % 3 == 1 ? 1 : 3)) % 4);
      EXPECT_EQ(op.lane, i % 3 == 0 ? -1 : 1);
      EXPECT_EQ(op.count, 1024u);
      EXPECT_EQ(op.bytes, 4096u);
      EXPECT_EQ(op.dtype, DType::I32);
      const int64_t sent[] = {6144, 4096, 0};
      EXPECT_EQ(op.sent_intra_bytes, crosses ? 0 : sent[i % 3]);
      EXPECT_EQ(op.sent_inter_bytes, crosses ? sent[i % 3] : 0);
      EXPECT_LT(op.wait_s, 0);  // pieces hide it
      EXPECT_LE(op.enqueued_s, op.started_s);
      EXPECT_LT(op.started_s, op.ended_s);
    }
  }
}

TEST(Staged, WithAProgressThreadTheRankNeedNotCall) {
  comm::WorldOptions options = staged();
  options.progress_thread = comm::ProgressThreadUse::On;
  run_ranks(
      2,
      [](comm::World& world) {
        for (int round = 0; round < 20; ++round) {
          std::vector<int32_t> x(1500, round), to(600, world.rank()), from(600, -1);
          comm::Work sum = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
          const P2p exchange[] = {{P2p::Kind::Send, buf(to), 1 - world.rank(), {}},
                                  {P2p::Kind::Recv, buf(from), 1 - world.rank(), {}}};
          comm::Work message = world.group().batch(exchange);
          if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          message.wait();
          sum.wait();
          EXPECT_EQ(x, std::vector<int32_t>(1500, 2 * round));
          EXPECT_EQ(from, std::vector<int32_t>(600, 1 - world.rank()));
        }
      },
      options);
}

}  // namespace
}  // namespace sixfold::test
