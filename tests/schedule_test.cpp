// Schedules as lists: names, parts and passes, 64-bit offsets, the order of additions. That they are right is verify's
// part.
#include "runtime/comm/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/comm/schedule/topology.h"
#include "tests/harness.h"

namespace sixfold::comm {
namespace {

constexpr size_t kHuge = (size_t{1} << 31) + 17;  // does not fit in 32 bits, neither do its bytes

Call make_call(Primitive primitive, int size, size_t count) {
  Call call;
  call.primitive = primitive;
  call.size = size;
  call.count = count;
  call.pass_count = count;
  return call;
}

Call on_rank(Call call, int rank) {
  call.rank = rank;
  return call;
}

/// On which topologies a builder is asked: hierarchical on all M x n, the others on none.
std::vector<const Topology*> topologies_of(Algorithm algorithm, int size) {
  if (algorithm != Algorithm::Hierarchical) return {nullptr};
  static std::map<std::string, Topology> known;
  std::vector<const Topology*> found;
  for (int nodes = 1; nodes <= size; ++nodes) {
    if (size % nodes != 0) continue;
    const std::string text = std::to_string(nodes) + "x" + std::to_string(size / nodes);
    found.push_back(&known.try_emplace(text, Topology::parse(text, size)).first->second);
  }
  return found;
}

/// Calls f(builder, call, algorithm) for all builders and topologies; `call` has `count` elements in one pass.
template <typename F>
void for_each_builder(const std::vector<int>& sizes, size_t count, F&& f) {
  for (Primitive primitive : kCollectives) {
    for (Algorithm algorithm : kAlgorithms) {
      const Builder builder = find_builder(primitive, algorithm);
      if (builder == nullptr) continue;
      for (int size : sizes) {
        for (const Topology* topology : topologies_of(algorithm, size)) {
          SCOPED_TRACE(std::string(primitive_name(primitive)) + " " + std::string(algorithm_name(algorithm)) +
                       " size " + std::to_string(size) + (topology == nullptr ? "" : " on " + topology->to_string()));
          Call call = make_call(primitive, size, count);
          call.topology = topology;
          f(builder, call, algorithm);
        }
      }
    }
  }
}

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
    const bool exists = primitive != Primitive::AllToAll;
    EXPECT_EQ(builder_applies(primitive, Algorithm::Hierarchical, &alike), exists);
    EXPECT_FALSE(builder_applies(primitive, Algorithm::Hierarchical, &unlike));
    EXPECT_FALSE(builder_applies(primitive, Algorithm::Hierarchical, nullptr));
    EXPECT_EQ(algorithms_of(primitive, &alike).back() == Algorithm::Hierarchical, exists);
    EXPECT_EQ(algorithms_of(primitive, &unlike), algorithms_of(primitive));
    if (!exists) continue;
    Call call = make_call(primitive, 4, 10);
    EXPECT_THROW(find_builder(primitive, Algorithm::Hierarchical)(call), CheckError);
    call.topology = &unlike;
    EXPECT_THROW(find_builder(primitive, Algorithm::Hierarchical)(call), CheckError);
  }
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

// ---- Passes --------------------------------------------------------------------------------------------------------

size_t largest_step(const Builder builder, const Call& call) {
  size_t largest = 0;
  for (int rank = 0; rank < call.size; ++rank) {
    for (const Step& step : builder(on_rank(call, rank)).steps) largest = std::max(largest, step.count());
  }
  return largest;
}

TEST(MaxPassCount, IsTheLargestThatTheSlotsHold) {
  for_each_builder({1, 2, 3, 4, 5, 8, 9, 17, 64}, 0, [](Builder builder, Call call, Algorithm algorithm) {
    for (size_t capacity : {1, 2, 3, 7, 64, 1000}) {
      for (size_t count : {size_t{1}, size_t{5}, size_t{100}, size_t{200000}}) {
        const auto largest = [&](size_t for_count) {
          return max_pass_count(call.primitive, algorithm, call.size, capacity, for_count, call.topology);
        };
        call.count = count;
        call.step_capacity = capacity;
        call.pass_count = std::min(largest(count), count);
        EXPECT_LE(largest_step(builder, call), capacity) << count;
        call.pass_count = std::min(largest(0), count);
        EXPECT_LE(largest_step(builder, call), capacity) << count;
        if (largest(count) >= count) continue;
        call.pass_count = largest(count) + 1;
        EXPECT_GT(largest_step(builder, call), capacity) << count;
      }
    }
  });
  EXPECT_EQ(max_pass_count(Primitive::AllReduce, Algorithm::Ring, 4, SIZE_MAX / 2), SIZE_MAX);
}

/// What one pass covers when a step moves 1000 elements at most: the whole buffer, or a part of it a step.
size_t expected_per_pass(const Call& call, Algorithm algorithm) {
  const size_t n = static_cast<size_t>(call.size);
  if (algorithm == Algorithm::DoubleTree) return n > 1 ? 2000 : 1000;
  if (call.primitive != Primitive::AllReduce) return 1000;
  if (algorithm == Algorithm::Ring || algorithm == Algorithm::Direct) return 1000 * n;
  if (algorithm == Algorithm::HalvingDoubling) return n == 2 || n == 4 ? 2000 : 1000;
  if (algorithm == Algorithm::Hierarchical) {
    const int per_node = call.topology->ranks_per_node();
    return 1000 * static_cast<size_t>(per_node > 1 ? per_node : call.size);
  }
  return 1000;
}

/// Where sums are kept in Output before they are final.
bool adds_in_output(const Call& call, Algorithm algorithm) {
  return call.primitive == Primitive::AllReduce &&
         (algorithm == Algorithm::RecursiveDoubling || algorithm == Algorithm::HalvingDoubling ||
          algorithm == Algorithm::Hierarchical);
}

// A chunk limit of 1000 elements and 10007 of them: the results that the passes write are everything, once.
TEST(Passes, CoverEverythingOnce) {
  constexpr size_t kCount = 10007;
  for_each_builder({1, 2, 3, 4}, kCount, [&](Builder builder, Call call, Algorithm algorithm) {
    const size_t pass_count = max_pass_count(call.primitive, algorithm, call.size, 1000, kCount, call.topology);
    for (call.rank = 0; call.rank < call.size; ++call.rank) {
      std::vector<int> writes(output_count(call.primitive, kCount, call.size), 0);
      size_t num_passes = 0;
      for (call.pass_offset = 0; call.pass_offset < kCount; call.pass_offset += pass_count, ++num_passes) {
        call.pass_count = std::min(pass_count, kCount - call.pass_offset);
        for (const Step& step : builder(call).steps) {
          EXPECT_LE(step.count(), 1000u);
          if (!step.dst.used || step.dst.buffer != Buffer::Output) continue;
          ASSERT_LE(step.dst.offset + step.dst.count, writes.size());
          for (size_t i = 0; i < step.dst.count; ++i) ++writes[step.dst.offset + i];
        }
      }
      const bool nothing = call.primitive == Primitive::Reduce && call.rank != call.root;
      const bool more = adds_in_output(call, algorithm);
      const auto right = [&](int times) { return nothing ? times == 0 : times == 1 || (more && times > 1); };
      EXPECT_TRUE(std::all_of(writes.begin(), writes.end(), right));
      const size_t per_pass = expected_per_pass(call, algorithm);
      EXPECT_EQ(num_passes, (kCount + per_pass - 1) / per_pass);
    }
  });
}

// ---- 64-bit offsets ------------------------------------------------------------------------------------------------

/// Elements of `buffer` that steps of any rank reach, as the end of the furthest slice.
size_t furthest_end(Builder builder, const Call& call, Buffer buffer) {
  size_t end = 0;
  for (int rank = 0; rank < call.size; ++rank) {
    for (const Step& step : builder(on_rank(call, rank)).steps) {
      for (const Slice& slice : {step.src, step.dst}) {
        if (slice.used && slice.buffer == buffer) end = std::max(end, slice.offset + slice.count);
      }
    }
  }
  return end;
}

TEST(HugeCounts, LastPassEndsWhereTheBuffersEnd) {
  EXPECT_EQ(kHuge * sizeof(float), 8589934660u);
  for_each_builder({1, 2, 3, 4, 6, 8}, kHuge, [](Builder builder, Call call, Algorithm) {
    call.pass_offset = kHuge - 1017;
    call.pass_count = 1017;
    EXPECT_EQ(furthest_end(builder, call, Buffer::Input), input_count(call.primitive, kHuge, call.size));
    EXPECT_EQ(furthest_end(builder, call, Buffer::Output), output_count(call.primitive, kHuge, call.size));
    for (int rank = 0; rank < call.size; ++rank) {
      for (const Step& step : builder(on_rank(call, rank)).steps) {
        for (const Slice& slice : {step.src, step.dst}) {
          if (!slice.used || slice.buffer == Buffer::Accum || slice.buffer == Buffer::Scratch) continue;
          EXPECT_GE(slice.offset % kHuge, kHuge - 1017) << to_string(step);  // of the last pass of some block
          EXPECT_LE(slice.count, 1017u);
        }
      }
    }
  });
}

// All in one pass, in steps that may hold all: the furthest offsets that there are, in every buffer.
TEST(HugeCounts, OnePassReachesTheEndOfEveryBuffer) {
  for_each_builder({2, 3, 4, 6, 8}, kHuge, [](Builder builder, Call call, Algorithm) {
    call.step_capacity = SIZE_MAX;
    size_t scratch = 0, accum = 0;
    for (int rank = 0; rank < call.size; ++rank) {
      scratch = std::max(scratch, builder(on_rank(call, rank)).scratch_count);
      accum = std::max(accum, builder(on_rank(call, rank)).accum_count);
    }
    for (const auto& [buffer, expected] : {std::pair(Buffer::Input, input_count(call.primitive, kHuge, call.size)),
                                           std::pair(Buffer::Output, output_count(call.primitive, kHuge, call.size)),
                                           std::pair(Buffer::Scratch, scratch), std::pair(Buffer::Accum, accum)}) {
      EXPECT_EQ(furthest_end(builder, call, buffer), expected) << static_cast<int>(buffer);
    }
  });
}

TEST(HugeCounts, OnePassCanHoldItAll) {
  // The parts of PartOf.Table, as rank 0 gathers them: after its own, from rank 3, 2 and 1.
  for (Algorithm algorithm : {Algorithm::Ring, Algorithm::Direct}) {
    std::vector<size_t> begins;
    for (const Step& step :
         find_builder(Primitive::AllReduce, algorithm)(make_call(Primitive::AllReduce, 4, kHuge)).steps) {
      if (step.dst.used && step.dst.buffer == Buffer::Output) begins.push_back(step.dst.offset);
    }
    EXPECT_EQ(begins, (std::vector<size_t>{0, 1610612749, 1073741833, 536870917})) << algorithm_name(algorithm);
  }
  Call call = make_call(Primitive::AllToAll, 4, kHuge);
  call.rank = 3;
  EXPECT_EQ(find_builder(Primitive::AllToAll, Algorithm::Pairwise)(call).steps.front().src.offset, 6442450995u);
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
  EXPECT_TRUE(is_one_shot(4096, 2));
  EXPECT_FALSE(is_one_shot(4097, 2));
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
  EXPECT_EQ(to_string(schedule.steps[0]), "ch0  copy Input[5000,10000), send 1");
  EXPECT_EQ(to_string(schedule.steps[1]), "ch0  recv 1, reduce Input[0,5000) -> Output[0,5000), finish, send 1");
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
