// Lowering: chunks that blocks can share, instructions, and the checker that names what is wrong with lists.
#include "runtime/comm/cuda/chunk_cuts.h"
#include "runtime/comm/cuda/lowered_check.h"
#include "tests/schedule_cases.h"

namespace sixfold::comm {
namespace {

std::vector<bool> all(int size, bool in_place) {
  return std::vector<bool>(static_cast<size_t>(size), in_place);
}

constexpr BlockShape kSmall{.num_splits = 2, .num_slots = 4, .slot_elements = 8, .granule = 2};

TEST(PartOfChunk, CoversTheChunkInWholeGranules) {
  for (uint32_t length : {0u, 1u, 3u, 4u, 5u, 63u, 64u, 65u, 1000u}) {
    for (uint32_t splits : {1u, 2u, 3u, 16u}) {
      uint32_t next = 0;
      for (uint32_t split = 0; split < splits; ++split) {
        const ChunkPart part = part_of_chunk(length, split, splits, 4);
        if (part.count == 0) continue;
        EXPECT_EQ(part.begin, next);
        EXPECT_EQ(part.begin % 4, 0u);
        next = part.begin + part.count;
      }
      EXPECT_EQ(next, length);
    }
  }
  // 10 granules and a half for 3: 4, 4 and 3.
  EXPECT_EQ(part_of_chunk(42, 0, 3, 4).count, 16u);
  EXPECT_EQ(part_of_chunk(42, 1, 3, 4).count, 16u);
  EXPECT_EQ(part_of_chunk(42, 2, 3, 4).count, 10u);
}

TEST(ChunkWalk, FillsSlotsWithPiecesAtWholeGranules) {
  const uint64_t cuts[] = {0, 5, 5, 12};  // chunks of 5, 0 and 7 elements
  ChunkWalk walk(cuts, 3, 0, 1, 2);
  uint32_t filled = 0;
  const ChunkWalk::Piece first = walk.take(filled, 8);
  EXPECT_EQ(first.chunk, 0u);
  EXPECT_EQ(first.count, 5u);
  EXPECT_EQ(filled, 6u);
  const ChunkWalk::Piece second = walk.take(filled, 8);
  EXPECT_EQ(second.chunk, 2u);
  EXPECT_EQ(second.count, 2u);
  EXPECT_EQ(second.place, 6u);
  filled = 0;
  const ChunkWalk::Piece third = walk.take(filled, 8);
  EXPECT_EQ(third.offset, 2u);
  EXPECT_EQ(third.count, 5u);
  EXPECT_TRUE(walk.done());
}

// Recursive doubling gathers 1, 2, then 4 blocks a step: all are cut where the smallest step ends.
TEST(ChunkCuts, SpreadThroughMessagesAndCopies) {
  Call call = make_call(Primitive::AllGather, 8, 10);
  call.step_capacity = 1000;
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < 8; ++rank) {
    schedules.push_back(find_builder(Primitive::AllGather, Algorithm::RecursiveDoubling)(on_rank(call, rank)));
  }
  const ChunkCuts cuts(call, schedules);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(cuts.of(rank, Buffer::Output), (std::vector<uint64_t>{0, 10, 20, 30, 40, 50, 60, 70, 80})) << rank;
    EXPECT_EQ(cuts.of(rank, Buffer::Input), (std::vector<uint64_t>{0, 10})) << rank;
  }
}

// A cut that only one rank makes reaches whoever has the same values elsewhere.
TEST(ChunkCuts, ReachOtherBuffersOfOtherRanks) {
  const Call call = make_call(Primitive::Broadcast, 2, 12);
  std::vector<Schedule> schedules(2);
  schedules[0].steps = {{.send_peer = 1, .src = Slice::of(Buffer::Input, 0, 12)}};
  schedules[1].scratch_count = 12;
  schedules[1].steps = {{.recv_peer = 0, .dst = Slice::of(Buffer::Scratch, 0, 12)},
                        {.src = Slice::of(Buffer::Scratch, 3, 4), .dst = Slice::of(Buffer::Output, 3, 4)}};
  const ChunkCuts cuts(call, schedules);
  EXPECT_EQ(cuts.of(0, Buffer::Input), (std::vector<uint64_t>{0, 3, 7, 12}));
  EXPECT_EQ(cuts.of(1, Buffer::Scratch), (std::vector<uint64_t>{0, 3, 7, 12}));
  EXPECT_EQ(cuts.of(1, Buffer::Output), (std::vector<uint64_t>{3, 7}));
}

TEST(MatchMessages, RefusesSchedulesThatDoNotFit) {
  std::vector<Schedule> schedules(2);
  schedules[0].steps = {{.send_peer = 1, .src = Slice::of(Buffer::Input, 0, 12)}};
  EXPECT_THROW(match_messages(schedules), CheckError);
  schedules[1].steps = {{.recv_peer = 0, .dst = Slice::of(Buffer::Output, 0, 11)}};
  EXPECT_THROW(match_messages(schedules), CheckError);
  schedules[1].steps[0].dst.count = 12;
  EXPECT_EQ(match_messages(schedules).size(), 1u);
}

// Three ranks on a ring, by hand: rank 0 reduces into what it sends, with one instruction a step.
TEST(Lowering, RingByHand) {
  const Lowered lowered = lower(make_call(Primitive::AllReduce, 3, 9), all(3, false), Algorithm::Ring,
                                {.num_splits = 1, .num_slots = 8, .slot_elements = 16, .granule = 1});
  ASSERT_EQ(lowered.num_passes, 1u);
  const LoweredRank& rank = lowered.ranks[0];
  EXPECT_EQ(rank.send_peers, (std::vector<std::vector<int>>{{1}}));
  EXPECT_EQ(rank.recv_peers, (std::vector<std::vector<int>>{{2}}));
  std::vector<std::string> texts;
  for (const Instruction& instruction : rank.passes[0].lists[0]) texts.push_back(to_string(instruction));
  // Cuts: Input 0 3 6 9 are entries 0..3, Output 4..7.
  const std::vector<std::string> expected = {
      "copy Input chunks 2+1, send 0",
      "recv 0, reduce Input chunks 1+1, send 0",
      "recv 0, reduce Input chunks 0+1 -> Output chunks 4+1, finish, send 0",
      "recv 0 -> Output chunks 6+1, send 0",
      "recv 0 -> Output chunks 5+1",
  };
  EXPECT_EQ(texts, expected);
}

// No list receives into a buffer only to send the same elements in its next instruction: builders fuse the two.
TEST(Lowering, NothingIsLeftToFuse) {
  for_each_builder({2, 3, 5, 8}, 40, [](Builder, const Call& call, Algorithm algorithm) {
    const Lowered lowered = lower(call, all(call.size, false), algorithm, kSmall);
    for (const LoweredRank& rank : lowered.ranks) {
      for (const auto& list : rank.passes[0].lists) {
        for (size_t i = 1; i < list.size(); ++i) {
          const Instruction &before = list[i - 1], &after = list[i];
          const bool receives = (before.op & kReceives) && (before.op & kStores) && !(before.op & kSends);
          const bool sends = (after.op & kSends) && (after.op & kReadsSource) && !(after.op & (kReceives | kStores));
          const bool same = before.destination == after.source && before.num_chunks == after.num_chunks &&
                            before.buffers >> 4 == (after.buffers & 15);
          EXPECT_FALSE(receives && sends && same) << to_string(before) << " / " << to_string(after);
        }
      }
    }
  });
}

// Every builder: no deadlock with the real number of slots, no block that reads what another one has yet to write.
TEST(Lowering, EveryBuilderPassesTheChecker) {
  for (int splits : {1, 3}) {
    for (int slots : {2, 5}) {
      const BlockShape shape{.num_splits = splits, .num_slots = slots, .slot_elements = 8, .granule = 2};
      for (size_t count : {0, 1, 13, 150}) {
        for (bool in_place : {false, true}) {
          for_each_builder({1, 2, 3, 4, 5, 6, 7, 8, 9}, count, [&](Builder, Call call, Algorithm algorithm) {
            call.root = call.size - 1;
            const std::vector<bool> where = all(call.size, in_place);
            const Lowered lowered = lower(call, where, algorithm, shape);
            const LoweredReport report = check_lowered(lowered, call, where);
            ASSERT_TRUE(report.ok()) << report.detail;
          });
        }
      }
    }
  }
}

// Blocks of different size end in different passes: no two passes are alike.
TEST(Lowering, BlocksOfDifferentSizePassTheChecker) {
  for (int size : {2, 3, 5, 8}) {
    const auto n = static_cast<size_t>(size);
    for (Primitive primitive : {Primitive::AllGather, Primitive::ReduceScatter, Primitive::AllToAll}) {
      std::vector<size_t> counts(primitive == Primitive::AllToAll ? n * n : n);
      for (size_t i = 0; i < counts.size(); ++i) counts[i] = i % 4 == 1 ? 0 : 7 * i % 61;
      Call call = make_call(primitive, size, *std::max_element(counts.begin(), counts.end()));
      call.counts = &counts;
      for (Algorithm algorithm : algorithms_of(primitive)) {
        if (!supports_counts(primitive, algorithm)) continue;
        const Lowered lowered = lower(call, all(size, false), algorithm, kSmall);
        const LoweredReport report = check_lowered(lowered, call, all(size, false));
        ASSERT_TRUE(report.ok()) << algorithm_name(algorithm) << ": " << report.detail;
        EXPECT_FALSE(lowered.alike);
      }
    }
  }
}

// ---- what the checker finds ----------------------------------------------------------------------------------------

TEST(LoweredCheck, NamesAMissingDependency) {
  const Call call = make_call(Primitive::AllReduce, 4, 64);
  const std::vector<bool> where = all(4, false);
  Lowered lowered = lower(call, where, Algorithm::Tree, kSmall);
  ASSERT_TRUE(check_lowered(lowered, call, where).ok());
  // The top of the tree sends down what has come up: on another channel, so only the dependency orders the two.
  bool cut = false;
  for (LoweredRank& rank : lowered.ranks) {
    for (auto& list : rank.passes[0].lists) {
      for (Instruction& instruction : list) {
        if (instruction.awaited == kNoInstruction) continue;
        instruction.awaited = kNoInstruction;
        cut = true;
      }
    }
  }
  ASSERT_TRUE(cut);
  const LoweredReport report = check_lowered(lowered, call, where);
  EXPECT_EQ(report.fault, LoweredFault::MissingDependency) << report.detail;
  for (const char* part : {"rank ", "channel ", "split ", "pass 0", "instruction ", "element "}) {
    EXPECT_NE(report.detail.find(part), std::string::npos) << part << " not in: " << report.detail;
  }
}

// Blocks that cut a step elsewhere than the step before race, though neither knows of a dependency that it lacks.
TEST(LoweredCheck, NamesSplitsThatDoNotFit) {
  const Call call = make_call(Primitive::AllGather, 4, 16);
  const std::vector<bool> where = all(4, false);
  Lowered lowered = lower(call, where, Algorithm::RecursiveDoubling,
                          {.num_splits = 2, .num_slots = 8, .slot_elements = 32, .granule = 1});
  ASSERT_TRUE(check_lowered(lowered, call, where).ok());
  for (LoweredRank& rank : lowered.ranks) {
    LoweredPass& pass = rank.passes[0];
    for (Instruction& instruction : pass.lists[0]) {
      if (instruction.num_chunks != 2) continue;
      // As one chunk of twice the length: the first block would move what the second one has received.
      for (uint16_t* first : {&instruction.source, &instruction.destination}) {
        const uint64_t begin = pass.cuts[*first], end = pass.cuts[*first + 2u];
        *first = static_cast<uint16_t>(pass.cuts.size());
        pass.cuts.insert(pass.cuts.end(), {begin, end});
      }
      instruction.num_chunks = 1;
    }
  }
  const LoweredReport report = check_lowered(lowered, call, where);
  EXPECT_EQ(report.fault, LoweredFault::MissingDependency) << report.detail;
}

TEST(LoweredCheck, NamesADeadlock) {
  const Call call = make_call(Primitive::AllReduce, 3, 120);
  Lowered lowered = lower(call, all(3, false), Algorithm::Ring, kSmall);
  ASSERT_TRUE(check_lowered(lowered).ok());
  Lowered too_few = lowered;
  too_few.shape.num_slots = 1;  // of steps that need three
  LoweredReport report = check_lowered(too_few);
  EXPECT_EQ(report.fault, LoweredFault::Deadlock) << report.detail;
  EXPECT_NE(report.detail.find("rank 2, channel 0, split 1"), std::string::npos) << report.detail;
  // A rank that receives before it sends, among ranks that all do.
  for (LoweredRank& rank : lowered.ranks) {
    std::vector<Instruction>& list = rank.passes[0].lists[0];
    std::swap(list[0], list[1]);
  }
  report = check_lowered(lowered);
  EXPECT_EQ(report.fault, LoweredFault::Deadlock) << report.detail;
}

TEST(LoweredCheck, NamesMessagesThatDoNotFit) {
  const Call call = make_call(Primitive::Broadcast, 2, 20);
  Lowered lowered = lower(call, all(2, true), Algorithm::Ring, kSmall);
  Lowered longer = lowered;
  longer.ranks[0].passes[0].cuts[1] += 2;
  EXPECT_EQ(check_lowered(longer).fault, LoweredFault::SizeMismatch);
  lowered.ranks[1].passes[0].lists[0].clear();
  EXPECT_EQ(check_lowered(lowered).fault, LoweredFault::Leftover);
}

// A step may need more slots than its elements alone would, since parts of chunks are whole granules: 4 chunks of 3
// elements take 16 of a slot of 12.
TEST(Lowering, PassesShrinkUntilStepsFit) {
  const BlockShape shape{.num_splits = 1, .num_slots = 2, .slot_elements = 12, .granule = 4};
  const Lowered lowered =
      lower(make_call(Primitive::AllReduce, 8, 1000), all(8, false), Algorithm::HalvingDoubling, shape);
  EXPECT_EQ(max_pass_count(Primitive::AllReduce, Algorithm::HalvingDoubling, 8, shape.step_capacity()), 24u);
  EXPECT_LT(lowered.pass_count, 24u);
  for (const LoweredRank& rank : lowered.ranks) {
    for (const Instruction& instruction : rank.passes[0].lists[0]) {
      EXPECT_LE(num_slices(lowered.shape, rank.passes[0], instruction, 0), 1u);
    }
  }
}

}  // namespace
}  // namespace sixfold::comm
