// Lowered lists of every builder, run by the kernel's interpreter with threads as blocks, give exact results.
#include "tests/lowered_machine.h"

#include "tests/harness.h"
#include "tests/schedule_cases.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Primitive;

/// One case a builder, topology and rank count, by what is left open in `c`.
template <typename F>
void for_each_case(int size, const F& f) {
  comm::for_each_builder({size}, 0, [&](comm::Builder, const comm::Call& call, Algorithm algorithm) {
    CollectiveCase c;
    c.primitive = call.primitive;
    c.algorithm = algorithm;
    c.dtype = DType::I32;
    if (c.primitive == Primitive::Broadcast || c.primitive == Primitive::Reduce) c.root = size / 2;
    f(c, call.topology);
  });
}

class Machine : public testing::TestWithParam<int> {};

// Few slots of 8 elements: many slices and passes; then again, on the same links and flags.
TEST_P(Machine, CountsAroundTheRankCount) {
  const Deadline deadline(120);
  const int size = GetParam();
  LoweredMachine machine(2, 2, 64);
  for_each_case(size, [&](CollectiveCase c, const comm::Topology* topology) {
#ifdef __SANITIZE_THREAD__  // makes threads slow to start: what takes the most turns, once
    const std::vector<size_t> counts = {101};
#else
    const std::vector<size_t> counts = {0, 1, static_cast<size_t>(size) + 1, 101};
#endif
    for (size_t count : counts) {
      for (bool in_place : {false, true}) {
        c.count = count;
        c.in_place = in_place;
        EXPECT_EQ(run_lowered(machine, size, c, topology), "");
      }
    }
  });
}

TEST_P(Machine, MoreSplitsAndSlotsAndUnalignedBuffers) {
  const Deadline deadline(120);
  const int size = GetParam();
  LoweredMachine machine(3, 5, 96);
  for_each_case(size, [&](CollectiveCase c, const comm::Topology* topology) {
    c.count = 257;
    c.shift = 1;
    EXPECT_EQ(run_lowered(machine, size, c, topology), "");
  });
}

// Every dtype and op, on some builder each: they take turns, so that all meet over the rank counts.
TEST_P(Machine, EveryDtypeAndOp) {
  const Deadline deadline(120);
  const int size = GetParam();
  LoweredMachine machine(2, 4, 128);
  int turn = size;
  for_each_case(size, [&](CollectiveCase c, const comm::Topology* topology) {
    c.count = 85;
    for (DType dtype : kAllDTypes) {
      c.dtype = dtype;
      ++turn;
      for (ReduceOp op : kAllReduceOps) {
        if (!kernels::reduce_supported(dtype, op)) continue;
        const bool in_turn = comm::reduces(c.primitive) ? (turn + static_cast<int>(op)) % 5 == 0 : op == ReduceOp::Sum;
        if (!in_turn) continue;
        c.op = op;
        c.in_place = turn % 2 == 0;
        EXPECT_EQ(run_lowered(machine, size, c, topology), "");
      }
    }
  });
}

#ifdef __SANITIZE_THREAD__  // powers of two and others, as lists differ by
INSTANTIATE_TEST_SUITE_P(Ranks, Machine, testing::Values(2, 3, 4, 5, 8));
#else
INSTANTIATE_TEST_SUITE_P(Ranks, Machine, testing::Range(1, 10));
#endif

// Blocks of 0, 3, 6, ... elements, gathered in passes that are all different.
TEST(LoweredMachine, BlocksOfDifferentSize) {
  const Deadline deadline(60);
  for (int size : {2, 4, 5, 8}) {
    LoweredMachine machine(2, 2, 64);
    std::vector<size_t> counts;
    std::vector<int32_t> expected;
    for (int rank = 0; rank < size; ++rank) {
      counts.push_back(static_cast<size_t>(rank) * 29);
      for (size_t i = 0; i < counts.back(); ++i) expected.push_back(1000 * rank + static_cast<int32_t>(i));
    }
    comm::Call call;
    call.primitive = Primitive::AllGather;
    call.size = size;
    call.count = counts.back();
    call.counts = &counts;
    for (Algorithm algorithm : comm::algorithms_of(call.primitive)) {
      const auto lowered =
          comm::lower(call, std::vector<bool>(counts.size(), false), algorithm, machine.shape(DType::I32));
      std::vector<std::vector<int32_t>> in, out(counts.size(), std::vector<int32_t>(expected.size(), -1));
      std::vector<LoweredMachine::Buffers> buffers;
      auto next = expected.begin();
      for (size_t count : counts) {
        in.emplace_back(next, next + static_cast<std::ptrdiff_t>(count));
        next += static_cast<std::ptrdiff_t>(count);
      }
      for (size_t r = 0; r < counts.size(); ++r) buffers.push_back({in[r].data(), out[r].data()});
      EXPECT_EQ(machine.run(lowered, DType::I32, ReduceOp::Sum, buffers, 1.0f), "");
      for (const auto& gathered : out) EXPECT_EQ(gathered, expected) << comm::algorithm_name(algorithm);
    }
  }
}

// 16-bit sums round once: 256 + 1 + 1 loses the ones, were it rounded to bf16 in between.
TEST(LoweredMachine, SixteenBitSumsRoundOnce) {
  const Deadline deadline(30);
  LoweredMachine machine(2, 4, 64);
  comm::Call call;
  call.size = 3;
  call.count = 100;
  const std::vector<bool> in_place(3, true);
  const comm::Lowered lowered = comm::lower(call, in_place, Algorithm::Direct, machine.shape(DType::BF16));
  std::vector<std::vector<BF16>> x;
  std::vector<LoweredMachine::Buffers> buffers;
  for (int rank = 0; rank < 3; ++rank) x.emplace_back(100, BF16(rank == 0 ? 256.0f : 1.0f));
  for (auto& own : x) buffers.push_back({own.data(), own.data()});
  EXPECT_EQ(machine.run(lowered, DType::BF16, ReduceOp::Sum, buffers, 1.0f), "");
  for (const auto& own : x) {
    for (BF16 value : own) EXPECT_EQ(static_cast<float>(value), 258.0f);
  }
}

// Lists that deadlock end by the deadline of every wait, and each block says where.
TEST(LoweredMachine, AWaitThatNeverEndsSaysWhere) {
  const Deadline deadline(30);
  LoweredMachine machine(1, 2, 64);
  comm::Call call;
  call.size = 2;
  call.count = 8;
  comm::Lowered lowered = comm::lower(call, std::vector<bool>(2, false), Algorithm::Ring, machine.shape(DType::I32));
  lowered.ranks[1].passes[0].lists[0].clear();  // rank 1 never takes part
  std::vector<int32_t> in(8, 1), out(8);
  const std::vector<LoweredMachine::Buffers> buffers(2, {in.data(), out.data()});
  const std::string stuck = machine.run(lowered, DType::I32, ReduceOp::Sum, buffers, 1.0f, 0.1);
  EXPECT_EQ(stuck, "rank 0 channel 0 split 0 pass 0 instruction 1; ");
}

}  // namespace
}  // namespace sixfold::test
