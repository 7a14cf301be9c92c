// Schedules as lists: names, parts, the order of additions, what steps are made of. That they are right is verify's
// part.
#include "runtime/comm/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/schedule_cases.h"

namespace sixfold::comm {
namespace {

// ---- Names and sizes -----------------------------------------------------------------------------------------------

TEST(ScheduleNames, ParseWhatTheyPrint) {
  for (Primitive primitive : kCollectives) EXPECT_EQ(parse_primitive(primitive_name(primitive)), primitive);
  for (Algorithm algorithm : kAlgorithms) EXPECT_EQ(parse_algorithm(algorithm_name(algorithm)), algorithm);
  EXPECT_EQ(parse_algorithm("auto"), Algorithm::Auto);
  EXPECT_EQ(primitive_name(Primitive::ReduceScatter), "reduce_scatter");
  EXPECT_EQ(primitive_name(Primitive::Send), "send");
}

template <typename F>
std::string config_error(F&& f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ScheduleNames, RefusalsNameValueAndAllowedValues) {
  EXPECT_EQ(config_error([] { parse_primitive("send"); }),
            "primitive 'send': allowed are broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all");
  EXPECT_EQ(config_error([] { parse_algorithm("Ring"); }),
            "algorithm 'Ring': allowed are auto, ring, tree, direct, pairwise, binomial, double_tree, "
            "recursive_doubling, halving_doubling, spread_out, hierarchical");
}

TEST(ScheduleNames, StepsPrint) {
  Step step;
  step.recv_peer = 3;
  step.send_peer = 1;
  step.src = Slice::of(Buffer::Input, 0, 16);
  step.reduce = true;
  EXPECT_EQ(to_string(step), "ch0  recv 3, reduce Input[0,16), send 1");
  step = {};
  step.recv_peer = 2;
  step.dst = Slice::of(Buffer::Output, 8, 4);
  EXPECT_EQ(to_string(step), "ch0  recv 2 -> Output[8,12)");
  step = {};
  step.src = Slice::of(Buffer::Accum, 0, 4);
  step.dst = Slice::of(Buffer::Scratch, 4, 4);
  step.finish = true;
  step.channel = 1;
  step.after = 7;
  EXPECT_EQ(to_string(step), "ch1  copy Accum[0,4) -> Scratch[4,8), finish, after step 7");
}

TEST(ScheduleTable, WhichAlgorithmsExist) {
  using A = Algorithm;
  const std::map<Primitive, std::vector<Algorithm>> expected = {
      {Primitive::Broadcast, {A::Ring, A::Tree, A::Direct, A::Binomial, A::DoubleTree}},
      {Primitive::Reduce, {A::Ring, A::Tree, A::Direct, A::Binomial, A::DoubleTree}},
      {Primitive::AllReduce, {A::Ring, A::Tree, A::Direct, A::DoubleTree, A::RecursiveDoubling, A::HalvingDoubling}},
      {Primitive::AllGather, {A::Ring, A::Direct, A::RecursiveDoubling, A::HalvingDoubling}},
      {Primitive::ReduceScatter, {A::Ring, A::Direct, A::HalvingDoubling}},
      {Primitive::AllToAll, {A::Pairwise, A::SpreadOut}},
      {Primitive::Send, {}},
      {Primitive::Barrier, {}}};
  for (const auto& [primitive, algorithms] : expected) EXPECT_EQ(algorithms_of(primitive), algorithms);
  EXPECT_EQ(find_builder(Primitive::AllReduce, Algorithm::Auto), nullptr);
  EXPECT_EQ(find_builder(Primitive::AllGather, Algorithm::Tree), nullptr);
}

TEST(ScheduleTable, HierarchicalNeedsNodesOfOneSize) {
  const Topology alike = Topology::parse("2x2", 4), unlike({0, 0, 0, 1});
  for (Primitive primitive : kCollectives) {
    EXPECT_TRUE(builder_applies(primitive, Algorithm::Hierarchical, &alike));
    EXPECT_FALSE(builder_applies(primitive, Algorithm::Hierarchical, &unlike));
    EXPECT_FALSE(builder_applies(primitive, Algorithm::Hierarchical, nullptr));
    EXPECT_EQ(algorithms_of(primitive, &alike).back(), Algorithm::Hierarchical);
    EXPECT_EQ(algorithms_of(primitive, &unlike), algorithms_of(primitive));
    Call call = make_call(primitive, 4, 10);
    EXPECT_THROW(find_builder(primitive, Algorithm::Hierarchical)(call), CheckError);
    call.topology = &unlike;
    EXPECT_THROW(find_builder(primitive, Algorithm::Hierarchical)(call), CheckError);
  }
  EXPECT_FALSE(builder_applies(Primitive::Send, Algorithm::Hierarchical, &alike));
  EXPECT_THROW(max_pass_count(Primitive::AllReduce, Algorithm::Hierarchical, 4, 10), CheckError);
  EXPECT_TRUE(builder_applies(Primitive::AllReduce, Algorithm::Ring, &unlike));
}

TEST(ScheduleTable, ElementsOfInputAndOutput) {
  const auto counts = [](Primitive primitive) {
    return std::pair(input_count(primitive, 10, 4), output_count(primitive, 10, 4));
  };
  EXPECT_EQ(counts(Primitive::Broadcast), std::pair(size_t{10}, size_t{10}));
  EXPECT_EQ(counts(Primitive::Reduce), std::pair(size_t{10}, size_t{10}));
  EXPECT_EQ(counts(Primitive::AllReduce), std::pair(size_t{10}, size_t{10}));
  EXPECT_EQ(counts(Primitive::AllGather), std::pair(size_t{10}, size_t{40}));
  EXPECT_EQ(counts(Primitive::ReduceScatter), std::pair(size_t{40}, size_t{10}));
  EXPECT_EQ(counts(Primitive::AllToAll), std::pair(size_t{40}, size_t{40}));
  EXPECT_EQ(input_count(Primitive::AllToAll, kHuge, 4) * sizeof(float), 34359738640u);
}

TEST(PartOf, Table) {
  const auto cut = [](size_t count, int parts) {
    std::vector<std::pair<size_t, size_t>> ranges;
    for (int i = 0; i < parts; ++i) ranges.emplace_back(part_of(count, parts, i).begin, part_of(count, parts, i).end);
    return ranges;
  };
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(cut(10, 3), (Ranges{{0, 4}, {4, 7}, {7, 10}}));
  EXPECT_EQ(cut(8, 4), (Ranges{{0, 2}, {2, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(cut(3, 5), (Ranges{{0, 1}, {1, 2}, {2, 3}, {3, 3}, {3, 3}}));
  EXPECT_EQ(cut(0, 2), (Ranges{{0, 0}, {0, 0}}));
  EXPECT_EQ(cut(7, 1), (Ranges{{0, 7}}));
  EXPECT_EQ(cut(kHuge, 4),
            (Ranges{{0, 536870917}, {536870917, 1073741833}, {1073741833, 1610612749}, {1610612749, 2147483665}}));
}

// ---- What steps are made of ----------------------------------------------------------------------------------------

std::string contribution(int rank) {
  return std::string("x").append(std::to_string(rank));
}

/// "(a + b)", a sum before a contribution and of two contributions the earlier one first: addition commutes.
std::string addition(std::string a, std::string b) {
  if (a.size() < b.size() || (a.size() == b.size() && b < a)) std::swap(a, b);
  return std::string("(").append(a).append(" + ").append(b).append(")");
}

/// The sum that `rank` finishes, as text: "((x0 + x1) + x2)". For schedules in which others send plain contributions.
std::string sum_of(const Schedule& schedule, int rank) {
  std::string accum;
  const auto local = [&](const Slice& slice) { return slice.buffer == Buffer::Accum ? accum : contribution(rank); };
  for (const Step& step : schedule.steps) {
    std::string value =
        step.recv_peer == kNoPeer ? local(step.reduce ? step.dst : step.src) : contribution(step.recv_peer);
    if (step.reduce) value = addition(value, local(step.src));
    if (step.dst.used && step.dst.buffer == Buffer::Accum) accum = value;
    if (step.finish) return value;
  }
  return "never finished";
}

// The same additions in the same order on every rank, in one shot and in two, in place or not; and nothing is rounded
// on the way, because what is not finished stays in Accum.
TEST(DirectOrder, IsRankOrder) {
  const std::map<int, std::string> expected = {
      {2, "(x0 + x1)"}, {3, "((x0 + x1) + x2)"}, {4, "(((x0 + x1) + x2) + x3)"}, {5, "((((x0 + x1) + x2) + x3) + x4)"}};
  for (const auto& [size, sum] : expected) {
    for (Primitive primitive : {Primitive::AllReduce, Primitive::ReduceScatter, Primitive::Reduce}) {
      for (size_t count : {size_t{10}, kOneShotCount}) {
        for (bool in_place : {false, true}) {
          Call call = make_call(primitive, size, count);
          call.in_place = in_place;
          for (call.rank = 0; call.rank < size; ++call.rank) {
            call.root = call.rank;
            const Schedule schedule = find_builder(primitive, Algorithm::Direct)(call);
            EXPECT_EQ(sum_of(schedule, call.rank), sum) << call.rank;
            for (const Step& step : schedule.steps) {
              const bool partial = step.dst.used && step.dst.buffer == Buffer::Accum;
              if (step.reduce && !step.finish) {
                EXPECT_TRUE(partial && step.send_peer == kNoPeer) << to_string(step);
              }
            }
          }
        }
      }
    }
  }
}

TEST(DirectOrder, OneShotIsDecidedByTheWholeCount) {
  EXPECT_TRUE(is_one_shot(0, 64));
  EXPECT_TRUE(is_one_shot(8192, 2));
  EXPECT_FALSE(is_one_shot(8193, 2));
  EXPECT_TRUE(is_one_shot(512, 8));
  EXPECT_FALSE(is_one_shot(513, 8));
  EXPECT_FALSE(is_one_shot(kHuge, 2));
  Call call = make_call(Primitive::AllReduce, 4, kOneShotCount);
  const auto num_steps = [&] { return find_builder(Primitive::AllReduce, Algorithm::Direct)(call).steps.size(); };
  const size_t whole = num_steps();
  call.pass_count = 1;  // the short last pass of a long operation
  EXPECT_EQ(num_steps(), whole);
  call.count = 1;
  EXPECT_LT(num_steps(), whole);
}

// No needless trip through memory: what a rank receives is added, stored and sent on in one step.
TEST(FusedSteps, TwoRanksDirect) {
  const Schedule schedule =
      find_builder(Primitive::AllReduce, Algorithm::Direct)(make_call(Primitive::AllReduce, 2, 10000));
  ASSERT_EQ(schedule.steps.size(), 3u);
  EXPECT_EQ(to_string(schedule.steps[0]), "ch0  copy Input[5000,10000), send 1, stays");
  EXPECT_EQ(to_string(schedule.steps[1]),
            "ch0  recv 1, reduce Input[0,5000) -> Output[0,5000), finish, send 1, stays, lands in Output[0,5000)");
  EXPECT_EQ(to_string(schedule.steps[2]), "ch0  recv 1 -> Output[5000,10000)");
  EXPECT_EQ(schedule.accum_count, 0u);
}

TEST(FusedSteps, RingAllReduceIsOneListOfTwoPrimitives) {
  for (int size : {2, 3, 7}) {
    const Schedule schedule =
        find_builder(Primitive::AllReduce, Algorithm::Ring)(make_call(Primitive::AllReduce, size, 70));
    EXPECT_EQ(schedule.steps.size(), static_cast<size_t>(2 * size - 1));
    EXPECT_EQ(schedule.accum_count + schedule.scratch_count, 0u);
  }
}

TEST(FusedSteps, InPlaceCopiesNothingItNeedNot) {
  for_each_builder({1, 2, 5, 6}, 12, [](Builder builder, Call call, Algorithm algorithm) {
    call.in_place = true;
    for (call.rank = 0; call.rank < call.size; ++call.rank) {
      const Schedule schedule = builder(call);
      EXPECT_EQ(schedule.steps.empty(), call.size == 1);
      const auto copies = std::count_if(schedule.steps.begin(), schedule.steps.end(), [](const Step& step) {
        return step.recv_peer == kNoPeer && !step.reduce && step.dst.used && !step.finish;
      });
      // Of 5 or 6 blocks, the two that are overwritten before their turn are put aside. Bruck's way through Scratch
      // copies one block in and the others out.
      int expected = 0;
      if (algorithm == Algorithm::Pairwise && call.size >= 5) expected = 2;
      if (algorithm == Algorithm::RecursiveDoubling && call.primitive == Primitive::AllGather && call.size >= 5) {
        expected = call.size;
      }
      // Blocks for the rail go in, blocks of the node out, all but one's own.
      if (algorithm == Algorithm::Hierarchical && call.primitive == Primitive::AllToAll) {
        expected = call.topology->num_nodes() - 1 + call.topology->ranks_per_node() - 1;
      }
      EXPECT_EQ(copies, expected);
    }
  });
}

// Accum and Scratch are used again by the next pass, in which one channel may be before another is.
TEST(Channels, ShareNoAccumAndNoScratch) {
  for_each_builder({2, 3, 4, 7, 8, 16, 17}, 12, [](Builder builder, Call call, Algorithm) {
    for (int rank = 0; rank < call.size; ++rank) {
      std::map<Buffer, std::set<int>> channels;
      for (const Step& step : builder(on_rank(call, rank)).steps) {
        for (const Slice& slice : {step.src, step.dst}) {
          if (slice.used) channels[slice.buffer].insert(step.channel);
        }
      }
      EXPECT_LE(channels[Buffer::Accum].size(), 1u);
      EXPECT_LE(channels[Buffer::Scratch].size(), 1u);
    }
  });
}

// What the links have channels for.
TEST(Channels, AreFourAtMost) {
  for_each_builder({8}, 12, [](Builder builder, Call call, Algorithm algorithm) {
    const bool both_ways = call.primitive == Primitive::AllReduce;
    const int trees = algorithm == Algorithm::DoubleTree ? 2 : 1;
    const bool tree = algorithm == Algorithm::DoubleTree || algorithm == Algorithm::Tree;
    EXPECT_EQ(builder(call).num_channels, tree && both_ways ? 2 * trees : trees);
  });
}

}  // namespace
}  // namespace sixfold::comm
