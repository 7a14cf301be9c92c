// Bytes counted in the links equal the formulas, and a schedule that sends too much is found out.
#include "runtime/comm/host/executor.h"
#include "tests/collective_cases.h"
#include "tests/harness.h"
#include "tests/predicted.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Primitive;

std::vector<comm::CommRow> rows_after(comm::World& world, const CollectiveCase& c) {
  world.group();
  world.comm_table().reset();
  EXPECT_EQ(run_case(world.group(), world.memory(), c), "");
  return world.comm_table().rows();
}

// Ring: S = 4 * count bytes; each rank sends 2(N-1)/N S for AllReduce, (N-1)/N S for its halves, written out per rank
// count.
TEST(Bytes, RingEqualsTheFormulaToTheByte) {
  for (int n : {2, 3, 4}) {
    run_ranks(n, [n](comm::World& world) {
      const size_t count = 12000;  // divisible by 2, 3 and 4
      const uint64_t bytes = count * 4;
      CollectiveCase c;
      c.algorithm = Algorithm::Ring;
      c.count = count;
      const auto sent = [&](Primitive primitive) {
        c.primitive = primitive;
        const auto rows = rows_after(world, c);
        EXPECT_EQ(rows.size(), 1u);
        EXPECT_EQ(static_cast<double>(rows[0].sent_bytes), rows[0].predicted_sent_bytes);
        EXPECT_EQ(rows[0].calls, 1);
        return rows[0].sent_bytes;
      };
      const uint64_t un = static_cast<uint64_t>(n);
      EXPECT_EQ(sent(Primitive::AllReduce), 2 * (un - 1) * bytes / un);
      // Block primitives count blocks: the full buffer is n times as large.
      EXPECT_EQ(sent(Primitive::AllGather), (un - 1) * bytes);
      EXPECT_EQ(sent(Primitive::ReduceScatter), (un - 1) * bytes);
      c.root = 0;
      EXPECT_EQ(sent(Primitive::Broadcast), world.rank() == n - 1 ? 0 : bytes);  // a chain: the last sends nothing
    });
  }
}

TEST(Bytes, EveryAlgorithmEqualsItsPrediction) {
  for (int n : {1, 2, 3, 4, 7}) {
    run_ranks(n, [](comm::World& world) {
      for (Primitive primitive : comm::kCollectives) {
        for (Algorithm algorithm : comm::algorithms_of(primitive)) {
          for (size_t count : {size_t{84}, size_t{84 * 1000}}) {  // divisible by every n here
            const auto rows = rows_after(world, {primitive, algorithm, count, DType::F32, ReduceOp::Sum, 0, false, 0});
            ASSERT_EQ(rows.size(), 1u);
            EXPECT_EQ(static_cast<double>(rows[0].sent_bytes), rows[0].predicted_sent_bytes)
                << comm::primitive_name(primitive) << " " << comm::algorithm_name(algorithm) << " n " << world.size();
          }
        }
      }
    });
  }
}

TEST(Bytes, PointToPointCountsPayload) {
  run_ranks(2, [](comm::World& world) {
    std::vector<float> x(1000);
    comm::Options options;
    options.tag = "pp.activation";
    if (world.rank() == 0) world.group().send(comm::Buf(x.data(), 1000, DType::F32), 1, options).wait();
    if (world.rank() == 1) world.group().recv(comm::Buf(x.data(), 1000, DType::F32), 0, options).wait();
    for (const auto& row : world.comm_table().rows()) {
      if (row.tag != options.tag) continue;
      EXPECT_EQ(row.sent_bytes, world.rank() == 0 ? 4000u : 0u);
    }
  });
}

// A ring that sends its first block twice (and receives it twice, so that nothing hangs): the links count more than the
// formula says.
comm::Schedule ring_that_repeats(const comm::Call& call) {
  comm::Schedule schedule = comm::find_builder(Primitive::AllGather, Algorithm::Ring)(call);
  std::vector<comm::Step> steps;
  bool sent_twice = false, received_twice = false;
  for (const comm::Step& step : schedule.steps) {
    steps.push_back(step);
    if (!sent_twice && step.send_peer != comm::kNoPeer && step.recv_peer == comm::kNoPeer) {
      steps.push_back(step);
      sent_twice = true;
    } else if (!received_twice && step.recv_peer != comm::kNoPeer) {
      comm::Step again = step;
      again.send_peer = comm::kNoPeer;
      steps.back() = again;
      steps.push_back(step);
      received_twice = true;
    }
  }
  schedule.steps = steps;
  return schedule;
}

TEST(Bytes, ARepeatedSliceIsSeen) {
  comm::Call call;
  call.primitive = Primitive::AllGather;
  call.size = 2;
  call.count = 100;
  const auto sent_by = [&](const comm::ScheduleSource& source) {
    const comm::LinkOptions options;
    const auto region = comm::SharedRegion::anonymous(comm::GroupLinks::region_bytes(2, options));
    const auto bells = comm::SharedRegion::anonymous(comm::Doorbells::region_bytes(2));
    uint64_t sent = 0;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        Memory memory;
        comm::PeerMemory no_heaps;
        comm::Doorbells doorbells(bells, rank, {0, 1});
        comm::GroupLinks links({comm::Topology::one_node(2), comm::Topology::one_node(2), region, nullptr}, rank,
                               {0, 1}, options, memory, no_heaps, doorbells, nullptr);
        comm::Workspace workspace;
        const comm::Fail fail = [](const std::string& reason) { throw CommError(reason); };
        std::vector<float> in(100, static_cast<float>(rank)), out(200);
        comm::Call mine = call;
        mine.rank = rank;
        const comm::Plan plan(mine, source, 100);
        comm::ScheduleRun run(links, plan, 0, {call.primitive, DType::F32, ReduceOp::Sum, Algorithm::Ring, 0, 100},
                              in.data(), out.data(), workspace, fail);
        while (!run.done()) {
          if (!run.advance()) std::this_thread::yield();
        }
        EXPECT_EQ(out[50], 0.0f);
        EXPECT_EQ(out[150], 1.0f);
        if (rank == 0) sent = run.sent_bytes();
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return sent;
  };
  Deadline deadline(20, "two hand-made ranks");
  const double predicted = 4 * comm::predicted_sent_elements(Primitive::AllGather, Algorithm::Ring, 0, 2, 0, 100);
  EXPECT_EQ(predicted, 400);
  EXPECT_EQ(static_cast<double>(sent_by(comm::find_builder(Primitive::AllGather, Algorithm::Ring))), predicted);
  EXPECT_EQ(static_cast<double>(sent_by(ring_that_repeats)), 2 * predicted);
}

}  // namespace
}  // namespace sixfold::test
