// Rank threads that share a GPU: they deposit operations, the last one launches. The GPU's place is taken by threads
// that run the same instruction lists (host_grid.h).
#include <thread>

#include "runtime/comm/observe/records.h"
#include "tests/harness.h"
#include "tests/host_gpus.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Buf;
using comm::Primitive;

comm::WorldOptions on_grid(std::shared_ptr<HostGrid> grid = std::make_shared<HostGrid>()) {
  comm::WorldOptions options;
  options.gpus = std::make_shared<HostGpus>(std::move(grid));
  options.timeout_s = 20;
  return options;
}

Buf buf(std::vector<int32_t>& x) {
  return Buf(x.data(), x.size(), DType::I32);
}

class Meeting : public testing::TestWithParam<int> {};

TEST_P(Meeting, EveryPrimitiveAndAlgorithmIsExact) {
  run_ranks(
      GetParam(),
      [](comm::World& world) {
        for (Primitive primitive : comm::kCollectives) {
          for (Algorithm algorithm : comm::algorithms_of(primitive)) {
            for (size_t count : {size_t{0}, size_t{1}, size_t{1009}}) {
              CollectiveCase c{primitive, algorithm, count};
              c.dtype = count % 2 == 0 ? DType::F32 : DType::BF16;
              c.in_place = count == 1;
              c.root = world.size() - 1;
              EXPECT_EQ(run_case(world.group(), world.memory(), c), "");
            }
          }
        }
      },
      on_grid());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Meeting, testing::Values(1, 2, 3, 4));

// The all-reduce that is written by hand: every dtype and op, packs and single elements, shifted and in place; and the
// bits of the algorithm `direct` on the host, whose order of additions it shares.
TEST(Meeting, DirectAllReduceByHand) {
  for (int ranks : {1, 2, 3, 5, 8}) {
    run_ranks(
        ranks,
        [](comm::World& world) {
          for (DType dtype : kAllDTypes) {
            for (ReduceOp op : kAllReduceOps) {
              if (!kernels::reduce_supported(dtype, op)) continue;
              for (size_t count : {size_t{1}, size_t{64}, size_t{1003}}) {
                for (size_t shift : {0, 1}) {
                  CollectiveCase c{Primitive::AllReduce, Algorithm::Direct, count, dtype, op, 0, count == 64, shift};
                  EXPECT_EQ(run_case(world.group(), world.memory(), c), "");
                }
              }
            }
          }
          comm::Communicator host = world.open_group(comm::BackendKind::Host, false);
          std::vector<float> x(1003);
          for (size_t i = 0; i < x.size(); ++i) {
            const CollectiveCase reals{.whole = false};
            x[i] = static_cast<float>(input_value(reals, world.rank(), i));
          }
          std::vector<float> by_hand(x.size()), by_schedule(x.size());
          comm::Options options;
          options.algorithm = Algorithm::Direct;
          const comm::ConstBuf in(x.data(), x.size(), DType::F32);
          world.group().all_reduce(in, Buf(by_hand.data(), x.size(), DType::F32), ReduceOp::Avg, options).wait();
          host.all_reduce(in, Buf(by_schedule.data(), x.size(), DType::F32), ReduceOp::Avg, options).wait();
          EXPECT_EQ(by_hand, by_schedule);
        },
        on_grid());
  }
}

TEST(Meeting, CountsPerPeerMessagesSplitAndBarrier) {
  run_ranks(
      3,
      [](comm::World& world) {
        const int rank = world.rank();
        const auto r = static_cast<size_t>(rank);
        // Rank r sends r + 1 elements to everyone, each of value 10 r + receiver.
        std::vector<int32_t> in, out(6), expected = {rank, 10 + rank, 10 + rank, 20 + rank, 20 + rank, 20 + rank};
        for (int to = 0; to < 3; ++to) in.insert(in.end(), r + 1, 10 * rank + to);
        const std::vector<size_t> send(3, r + 1), receive = {1, 2, 3};
        world.group().all_to_all(buf(in), buf(out), send, receive).wait();
        EXPECT_EQ(out, expected);

        std::vector<int32_t> sent = {rank, rank + 100}, received(2);
        const comm::P2p exchange[] = {{comm::P2p::Kind::Send, buf(sent), (rank + 1) % 3, {}},
                                      {comm::P2p::Kind::Recv, buf(received), (rank + 2) % 3, {}}};
        world.group().batch(exchange).wait();
        EXPECT_EQ(received, (std::vector<int32_t>{(rank + 2) % 3, (rank + 2) % 3 + 100}));
        const comm::P2p to_self[] = {{comm::P2p::Kind::Send, buf(sent), rank, {}},
                                     {comm::P2p::Kind::Recv, buf(received), rank, {}}};
        world.group().batch(to_self).wait();
        EXPECT_EQ(received, sent);

        comm::Communicator part = world.group().split(rank == 0 ? 1 : 0, -rank);
        std::vector<int32_t> own = {rank}, all(static_cast<size_t>(part.size()));
        part.all_gather(buf(own), buf(all)).wait();
        EXPECT_EQ(all, rank == 0 ? std::vector<int32_t>{0} : (std::vector<int32_t>{2, 1}));
        world.group().barrier();
      },
      on_grid());
}

// Groups are independent: their operations meet whatever the order in which the ranks issue them.
TEST(Meeting, RanksIssueGroupsInDifferentOrder) {
  run_ranks(
      4,
      [](comm::World& world) {
        comm::Communicator first = world.open_group(comm::BackendKind::Own, false);
        comm::Communicator second = world.open_group(comm::BackendKind::Own, false);
        for (int round = 0; round < 20; ++round) {
          std::vector<int32_t> a(10, 1), b(10, 2);
          comm::Communicator& early = world.rank() % 2 == 0 ? first : second;
          comm::Communicator& late = world.rank() % 2 == 0 ? second : first;
          comm::Work x = early.all_reduce(buf(a), buf(a), ReduceOp::Sum);
          comm::Work y = late.all_reduce(buf(b), buf(b), ReduceOp::Sum);
          y.wait();
          x.wait();
          // Each group has the early operation of two ranks and the late one of the others.
          EXPECT_EQ(a, std::vector<int32_t>(10, 6));
          EXPECT_EQ(b, std::vector<int32_t>(10, 6));
        }
      },
      on_grid());
}

// With a stream, the rank goes on once all have come, and its stream follows the operation when it waits, not before.
TEST(Meeting, StreamsFollowWhenTheirRankWaits) {
  const auto grid = std::make_shared<HostGrid>();
  run_ranks(
      2,
      [&](comm::World& world) {
        int stream = 0;
        std::vector<int32_t> x(10, 1);
        comm::Options options;
        options.stream = &stream;
        comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options);
        world.group().barrier();
        world.progress();
        EXPECT_EQ(stream, 0);
        work.wait();
        work.wait();
        EXPECT_EQ(stream, 1);
        EXPECT_EQ(x, std::vector<int32_t>(10, 2));
      },
      on_grid(grid));
  EXPECT_EQ(grid->num_marks(), 2);
  EXPECT_EQ(grid->num_launches(), 1);
}

// What the CPU spends in calls is not exposed then, but what the stream stands still for: once for each operation, in
// the phase of the wait, and known once the stream has come there.
TEST(Meeting, ExposedTimeIsTheStreams) {
  const auto gpus = std::make_shared<HostGpus>();
  comm::WorldOptions on_gpus;
  on_gpus.gpus = gpus;
  on_gpus.comm_log_bytes = 1 << 20;
  run_ranks(
      2,
      [&](comm::World& world) {
        int stream = 0;
        std::vector<int32_t> x(10, 1);
        comm::Options options;
        options.stream = &stream;
        options.tag = "exposed";
        const auto exposed = [&](comm::CommPhase phase) { return exposed_seconds(world, "exposed", phase); };
        world.group().barrier();
        gpus->streams_have_come = false;
        comm::Work first = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options);
        if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        comm::Work second = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options);
        first.wait();
        first.wait();
        {
          const comm::StepScope step(world.comm_table(), 1);
          while (!second.test()) {
          }
        }
        EXPECT_EQ(exposed(comm::CommPhase::Outside) + exposed(comm::CommPhase::Step), 0);
        world.group().barrier();
        gpus->streams_have_come = true;
        EXPECT_EQ(exposed(comm::CommPhase::Outside), HostClock::kTick);
        EXPECT_EQ(exposed(comm::CommPhase::Step), HostClock::kTick);
        EXPECT_EQ(exposed(comm::CommPhase::Step), HostClock::kTick);  // counted once
        for (const comm::CommRow& row : world.comm_table().rows(comm::CommPhase::Step)) EXPECT_FALSE(row.knows_waits);
        double logged = 0;
        for (const comm::RankRecords& rank : comm::gather_records(world, {})) {
          for (const comm::LoggedOperation& operation : rank.operations) {
            if (rank.rows.at(operation.row).tag != "exposed") continue;
            logged += operation.exposed_s;
            EXPECT_LT(operation.exposed_wait_s, 0);  // not known
          }
        }
        EXPECT_EQ(logged, world.rank() == 0 ? 4 * HostClock::kTick : 0);
      },
      on_gpus);
}

TEST(Meeting, SentBytesAreThoseOfTheLists) {
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
      on_grid());
}

std::string failure_of(int ranks, const std::function<void(comm::World&)>& body, comm::WorldOptions options) {
  try {
    run_ranks(ranks, body, std::move(options), 30);
  } catch (const CommError& error) {
    return error.what();
  }
  return "(none)";
}

TEST(Meeting, MismatchNamesBothSides) {
  const auto grid = std::make_shared<HostGrid>();
  const std::string text = failure_of(
      3,
      [](comm::World& world) {
        std::vector<int32_t> x(world.rank() == 2 ? 7 : 8);
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
      },
      on_grid(grid));
  EXPECT_NE(text.find("count 7"), std::string::npos) << text;
  EXPECT_NE(text.find("count 8"), std::string::npos) << text;
  EXPECT_NE(text.find("all_reduce #0"), std::string::npos) << text;
  EXPECT_TRUE(grid->aborted());
}

TEST(Meeting, ARankThatNeverComesIsNamed) {
  comm::WorldOptions options = on_grid();
  options.timeout_s = 1;
  const std::string text = failure_of(
      3,
      [](comm::World& world) {
        world.group().barrier();
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
        std::vector<int32_t> x(8);
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
      },
      options);
  EXPECT_NE(text.find("all_reduce #0"), std::string::npos) << text;
  EXPECT_NE(text.find("have not entered it: 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace sixfold::test
