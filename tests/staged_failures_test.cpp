// What goes wrong in collectives on GPUs that go through the host, and which groups do.
#include <thread>

#include "tests/refusal.h"
#include "tests/staged_fixture.h"

namespace sixfold::test {
namespace {

using comm::Buf;
using comm::ConstBuf;
using comm::P2p;

std::string failure_of(int ranks, const std::function<void(comm::World&)>& body, comm::WorldOptions options) {
  try {
    run_ranks(ranks, body, std::move(options), 30);
  } catch (const CommError& error) {
    return error.what();
  }
  return "(none)";
}

// The counts of pieces agree: what is compared is the whole.
TEST(StagedFailures, MismatchNamesBothSides) {
  const std::string text = failure_of(
      3,
      [](comm::World& world) {
        std::vector<int32_t> x(world.rank() == 2 ? 700 : 800);
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
      },
      staged());
  expect_mentions(text, {"all_reduce", "count 700", "count 800"});
}

TEST(StagedFailures, AMessageOfAnotherCountIsRefusedAtOnce) {
  const std::string text = failure_of(
      2,
      [](comm::World& world) {
        std::vector<int32_t> x(world.rank() == 0 ? 1024 : 512);  // 4 pieces and 2
        (world.rank() == 0 ? world.group().send(buf(x), 1) : world.group().recv(buf(x), 0)).wait();
        world.group().barrier();
      },
      staged());
  expect_mentions(text, {"count 1024", "count 512"});
}

TEST(StagedFailures, CountsPerPeerThatDisagreeAreRefused) {
  const std::string text = failure_of(
      2,
      [](comm::World& world) {
        std::vector<int32_t> in(600), out(world.rank() == 0 ? 600 : 700);
        const std::vector<size_t> send = {300, 300}, receive = {300, out.size() - 300};
        world.group().all_to_all(buf(in), buf(out), send, receive).wait();
      },
      staged());
  expect_mentions(text, {"all_to_all #0", "sends 300 elements, this rank expects 400"});
}

TEST(StagedFailures, ARankThatNeverComesIsNamed) {
  comm::WorldOptions options = staged();
  options.timeout_s = 0.5;
  const std::string text = failure_of(
      3,
      [](comm::World& world) {
        world.group().barrier();
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
        std::vector<int32_t> x(8);
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
      },
      options);
  expect_mentions(text, {"all_reduce #0", "have not entered it: 1"});
}

TEST(StagedFailures, AStreamThatNeverComesIsTheRanksOwn) {
  comm::WorldOptions options = staged();
  options.timeout_s = 0.5;
  const std::string text = failure_of(
      1,
      [](comm::World& world) {
        HostStream stream;
        stream.reached = false;
        std::vector<int32_t> x(8);
        comm::Options with_stream;
        with_stream.stream = &stream;
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, with_stream).wait();
      },
      options);
  expect_mentions(text, {"all_reduce #0", "its stream has not come to it"});
}

TEST(StagedFailures, ADeviceThatFailsStopsTheWorld) {
  const auto gpus = std::make_shared<HostGpus>();
  const std::string text = failure_of(
      2,
      [&](comm::World& world) {
        std::vector<int32_t> x(700);
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
        world.group().barrier();
        gpus->counts.breaks = true;
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
      },
      staged(gpus));
  expect_mentions(text, {"all_reduce #1 (untagged) of group world", "the copy engine is on fire"});
  EXPECT_EQ(gpus->counts.pins, gpus->counts.unpins);
}

// Once a rank has its CommError, buffers may go: of the sum's three pieces, two are on their way when the exchange
// after it is refused.
TEST(StagedFailures, AFailureLeavesNoCopyUnderWay) {
  const auto gpus = std::make_shared<HostGpus>();
  gpus->counts.is_slow = true;
  const std::string text = failure_of(
      1,
      [&](comm::World& world) {
        std::vector<int32_t> x(700), in(300), out(400);
        comm::Work sum = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
        try {
          world.group().all_to_all(buf(in), buf(out), std::vector<size_t>{300}, std::vector<size_t>{400}).wait();
        } catch (const CommError&) {
          EXPECT_EQ(gpus->counts.under_way, 0);
          throw;
        }
      },
      staged(gpus));
  expect_mentions(text, {"sends 300 elements, this rank expects 400"});
}

// Four ranks on two GPUs that do not reach each other: all together go through the host, those of one GPU do not.
TEST(StagedFailures, EachGroupHasTheModeOfItsRanks) {
  const auto grid = std::make_shared<HostGrid>();
  const auto gpus = std::make_shared<HostGpus>(grid);
  gpus->place_of = [](int local_rank) {
    comm::GpuPlace place;
    place.gpu.bytes[0] = static_cast<uint8_t>(local_rank % 2);
    return place;
  };
  comm::WorldOptions options = staged(gpus);
  options.gpu_mode = comm::GpuMode::Auto;
  run_ranks(
      4,
      [&](comm::World& world) {
        EXPECT_EQ(world.gpu_use(), nullptr);
        std::vector<int32_t> x(100, 1), y(100, 1);
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
        EXPECT_EQ(x, std::vector<int32_t>(100, 4));
        EXPECT_EQ(world.gpu_use()->mode, comm::GpuMode::Staged);
        EXPECT_EQ(world.gpu_use()->num_sharing, 2);
        world.group().barrier();
        EXPECT_EQ(grid->num_launches(), 0);
        world.group().barrier();
        comm::Communicator together = world.group().split(world.rank() < 2 ? 0 : 1, 0);
        comm::Communicator same_gpu = world.group().split(world.rank() % 2, 0);
        together.all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
        EXPECT_EQ(x, std::vector<int32_t>(100, 8));
        same_gpu.all_reduce(Buf(y.data(), 100, DType::I32), Buf(y.data(), 100, DType::I32), ReduceOp::Sum).wait();
        EXPECT_EQ(y, std::vector<int32_t>(100, 2));
      },
      options);
  EXPECT_EQ(grid->num_launches(), 2);
}

TEST(StagedFailures, ModesThatTheRanksCannotHaveAreRefused) {
  comm::WorldOptions options = staged();
  options.gpu_mode = comm::GpuMode::Peer;
  const auto opens = [](comm::World& world) { world.group(); };
  expect_mentions(refusal([&] { run_ranks(2, opens, options); }),
                  {"--gpu-mode peer", "ranks 0 and 1 share a GPU", "auto, shared, stepped, staged"});
  const auto gpus = std::make_shared<HostGpus>();
  gpus->place_of = [](int local_rank) {
    comm::GpuPlace place;
    place.gpu.bytes[0] = static_cast<uint8_t>(local_rank);
    return place;
  };
  options.gpus = gpus;
  options.gpu_mode = comm::GpuMode::Shared;
  expect_mentions(refusal([&] { run_ranks(2, opens, options); }),
                  {"--gpu-mode shared", "rank 1 is on another GPU than rank 0"});
}

}  // namespace
}  // namespace sixfold::test
