// The simulation of cost.h beside small cases worked out by hand, and beside the formulas of the textbooks.
#include "runtime/comm/schedule/cost.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tests/harness.h"
#include "tests/predicted.h"

namespace sixfold::comm {
namespace {

using BuildFunction = std::function<Schedule(const Call&)>;

constexpr double kMicro = 1e-6;

/// Intra: 1 us and 1 GB/s, so that 1000 bytes take 1 us to carry. Inter: 10 us and 0.1 GB/s. Reductions: 2 GB/s.
Profile micro_profile() {
  return {.name = "micro", .intra = {1e-6, 1e9}, .inter = {10e-6, 1e8}, .reduce_bytes_per_s = 2e9};
}

Call make_call(Primitive primitive, int size, size_t count, const Topology* topology = nullptr) {
  Call call;
  call.primitive = primitive;
  call.size = size;
  call.count = count;
  call.topology = topology;
  return call;
}

/// Of elements of one byte; the whole buffer in one pass of one slice a step.
double one_slice_us(const Call& call, const BuildFunction& builder, const Profile& profile = micro_profile()) {
  const size_t all = std::max(size_t{1}, call.count);
  Call whole = call;
  whole.step_capacity = all * static_cast<size_t>(call.size);
  return simulate(whole, builder, {2, whole.step_capacity}, 1, all, profile).seconds / kMicro;
}

double one_slice_us(const Call& call, Algorithm algorithm) {
  return one_slice_us(call, find_builder(call.primitive, algorithm));
}

/// A schedule that has only these steps, by rank.
BuildFunction steps_of(const std::vector<std::vector<Step>>& steps, int num_channels = 1) {
  return [=](const Call& call) {
    Schedule schedule;
    schedule.steps = steps.at(static_cast<size_t>(call.rank));
    schedule.num_channels = num_channels;
    return schedule;
  };
}

const Slice kIn = Slice::of(Buffer::Input, 0, 1000);
const Slice kOut = Slice::of(Buffer::Output, 0, 1000);

// ---- By hand -------------------------------------------------------------------------------------------------------

TEST(Cost, OneMessageTakesLatencyAndBytes) {
  const Call call = make_call(Primitive::Broadcast, 2, 1000);
  const CostReport report =
      simulate(call, find_builder(Primitive::Broadcast, Algorithm::Ring), {2, 1000}, 1, 1000, micro_profile());
  EXPECT_NEAR(report.seconds, 2e-6, 1e-12);
  EXPECT_EQ(report.finish_s[0], 0);
  EXPECT_NEAR(report.finish_s[1], 2e-6, 1e-12);
  EXPECT_EQ(report.sent_bytes[0], 1000u);
  EXPECT_EQ(report.sent_bytes[1], 0u);
  EXPECT_EQ(report.num_slices, 2u);
}

TEST(Cost, RingOfTwoByHand) {
  // Halves of 4000: 1 + 4 to carry, 2 to add, 1 + 4 back.
  EXPECT_NEAR(one_slice_us(make_call(Primitive::AllReduce, 2, 8000), Algorithm::Ring), 12, 1e-6);
}

TEST(Cost, ChainIsPipelined) {
  // Four slices of 1000 over two hops: the first is there after 2 * (1 + 1), each later one 1 behind.
  const Call call = make_call(Primitive::Broadcast, 3, 4000);
  const auto chain = find_builder(Primitive::Broadcast, Algorithm::Ring);
  EXPECT_NEAR(simulate(call, chain, {5, 1000}, 1, 4000, micro_profile()).seconds, 7e-6, 1e-12);
  // The same in passes of one slice each: passes follow on one another without a barrier.
  EXPECT_NEAR(simulate(call, chain, {5, 1000}, 1, 1000, micro_profile()).seconds, 7e-6, 1e-12);
  // The last slice may be shorter: 3000 + 500.
  const Call shorter = make_call(Primitive::Broadcast, 2, 3500);
  EXPECT_NEAR(simulate(shorter, chain, {5, 1000}, 1, 3500, micro_profile()).seconds, 4.5e-6, 1e-12);
}

TEST(Cost, CreditsHoldTheSenderBack) {
  // Two slots, latency 10, slices of 1: slices 0 and 1 arrive at 11 and 12, which is when 2 and 3 leave: 22, 23, ...
  Profile profile = micro_profile();
  profile.intra.alpha_s = 10e-6;
  const Call call = make_call(Primitive::Broadcast, 2, 6000);
  const auto chain = find_builder(Primitive::Broadcast, Algorithm::Ring);
  EXPECT_NEAR(simulate(call, chain, {2, 1000}, 1, 1000, profile).seconds, 34e-6, 1e-12);
  EXPECT_NEAR(simulate(call, chain, {6, 1000}, 1, 5000, profile).seconds, 16e-6, 1e-12);
}

// Ranks 0 and 1 on one node each send 1000 bytes to ranks 2 and 3 on the other one: 10 us to carry on one card.
TEST(Cost, RanksOfANodeShareItsCard) {
  const Topology topology = Topology::parse("2x2", 4);
  const Call call = make_call(Primitive::AllGather, 4, 1000, &topology);
  const auto flows = steps_of({{{.send_peer = 2, .src = kIn}},
                               {{.send_peer = 3, .src = kIn}},
                               {{.recv_peer = 0, .dst = kOut}},
                               {{.recv_peer = 1, .dst = kOut}}});
  Profile profile = micro_profile();
  const CostReport shared = simulate(call, flows, {2, 1000}, 1, 1000, profile);
  EXPECT_NEAR(shared.finish_s[2], 20e-6, 1e-12);
  EXPECT_NEAR(shared.finish_s[3], 30e-6, 1e-12);
  EXPECT_EQ(shared.sent_bytes[1], 2000u);
  profile.num_rails = 2;
  EXPECT_NEAR(simulate(call, flows, {2, 1000}, 1, 1000, profile).seconds, 20e-6, 1e-12);
}

TEST(Cost, IngressIsSharedToo) {
  // Rank 0 receives 1000 bytes from each of three: 1 + 1, 1 + 2, 1 + 3; additions of 0.5 overlap but the last.
  EXPECT_NEAR(one_slice_us(make_call(Primitive::Reduce, 4, 1000), Algorithm::Direct), 4.5, 1e-6);
  // Nodes of one rank: two cards send into one, 10 us each.
  const Topology topology = Topology::parse("3x1", 3);
  EXPECT_NEAR(one_slice_us(make_call(Primitive::Reduce, 3, 1000, &topology), Algorithm::Direct), 30.5, 1e-6);
}

TEST(Cost, SendsAndReceivesOverlapWithOneAnother) {
  EXPECT_NEAR(one_slice_us(make_call(Primitive::AllToAll, 2, 1000), Algorithm::Pairwise), 2, 1e-6);
}

TEST(Cost, ChannelsTakeTurnsAtTheComputeAndAtThePort) {
  // Two channels, side by side: each adds 1000 bytes locally (0.5) and sends the sum (1 + 1).
  const auto add_and_send = [](int channel) {
    return Step{.send_peer = 1, .src = kIn, .dst = kOut, .reduce = true, .channel = channel};
  };
  const auto receive = [](int channel) { return Step{.recv_peer = 0, .dst = kOut, .channel = channel}; };
  const auto both = steps_of({{add_and_send(0), add_and_send(1)}, {receive(0), receive(1)}}, 2);
  const CostReport report =
      simulate(make_call(Primitive::AllReduce, 2, 1000), both, {2, 1000}, 1, 1000, micro_profile());
  EXPECT_NEAR(report.finish_s[0], 1e-6, 1e-12);    // 0.5 + 0.5
  EXPECT_NEAR(report.finish_s[1], 3.5e-6, 1e-12);  // the second sum waits from 1 to 1.5 for the port
}

TEST(Cost, AfterWaitsForTheSameSliceOnly) {
  // Channel 1 sends slice i once channel 0 has received it: 2, 3 -> arrives 2 later.
  const Slice in = Slice::of(Buffer::Input, 0, 2000), out = Slice::of(Buffer::Output, 0, 2000);
  const auto relay = steps_of({{{.send_peer = 1, .src = in}},
                               {{.recv_peer = 0, .dst = out}, {.send_peer = 2, .src = out, .channel = 1, .after = 0}},
                               {{.recv_peer = 1, .dst = out, .channel = 1}}},
                              2);
  const CostReport report =
      simulate(make_call(Primitive::Broadcast, 3, 2000), relay, {3, 1000}, 1, 2000, micro_profile());
  EXPECT_NEAR(report.finish_s[1], 3e-6, 1e-12);
  EXPECT_NEAR(report.finish_s[2], 5e-6, 1e-12);
}

TEST(Cost, CopiesCostWhatTheProfileSays) {
  Profile profile = micro_profile();
  profile.copy_bytes_per_s = 4e9;
  const Call call = make_call(Primitive::Broadcast, 2, 1000);
  // A copy of 0.25 into the slot and one out of it.
  EXPECT_NEAR(one_slice_us(call, find_builder(Primitive::Broadcast, Algorithm::Ring), profile), 2.5, 1e-6);
}

TEST(Cost, NothingTakesNoTime) {
  EXPECT_EQ(one_slice_us(make_call(Primitive::AllReduce, 4, 0), Algorithm::Ring), 0);
  EXPECT_EQ(one_slice_us(make_call(Primitive::AllReduce, 1, 1000), Algorithm::Ring), 0);
}

TEST(Cost, RefusesWhatCannotRun) {
  const Call call = make_call(Primitive::Broadcast, 2, 1000);
  const auto both_receive = steps_of({{{.recv_peer = 1, .dst = kOut}}, {{.recv_peer = 0, .dst = kOut}}});
  EXPECT_THROW(one_slice_us(call, both_receive), CheckError);
  const auto sizes_differ =
      steps_of({{{.send_peer = 1, .src = kIn}}, {{.recv_peer = 0, .dst = Slice::of(Buffer::Output, 0, 10)}}});
  EXPECT_THROW(one_slice_us(call, sizes_differ), CheckError);
  Profile no_rate = micro_profile();
  no_rate.inter.bytes_per_s = 0;
  const auto chain = find_builder(Primitive::Broadcast, Algorithm::Ring);
  EXPECT_THROW(one_slice_us(call, chain, no_rate), CheckError);
  EXPECT_THROW(simulate(call, chain, {2, 3}, 4, 1000, micro_profile()), CheckError);
  EXPECT_THROW(simulate(call, chain, {1, 1000}, 4, 1000, micro_profile()), CheckError);
  const Topology other = Topology::parse("2x2", 4);
  EXPECT_THROW(one_slice_us(make_call(Primitive::Broadcast, 2, 1000, &other), chain), CheckError);
}

// ---- Textbook formulas ---------------------------------------------------------------------------------------------

/// One message a step: a, latency; x and g, to carry and to add a message; n, ranks. In us, one node.
struct Terms {
  double n, a, x, g;
};
struct FormulaRow {
  Primitive primitive;
  Algorithm algorithm;
  int parts_per_rank;  // messages are S / n where 1, S where 0
  std::vector<int> sizes;
  double (*microseconds)(const Terms&);
};

/// Levels below the top of a full binary tree.
double depth(double n) {
  return std::log2(n + 1) - 1;
}

const std::vector<int> kAnySize = {2, 3, 4, 8, 16};
const std::vector<int> kPowersOfTwo = {2, 4, 8, 16};
const std::vector<int> kFullTrees = {3, 7, 15};
const FormulaRow kFormulas[] = {
    {Primitive::AllReduce, Algorithm::Ring, 1, kAnySize,
     [](const Terms& t) { return 2 * (t.n - 1) * (t.a + t.x) + (t.n - 1) * t.g; }},
    {Primitive::ReduceScatter, Algorithm::Ring, 1, kAnySize,
     [](const Terms& t) { return (t.n - 1) * (t.a + t.x + t.g); }},
    {Primitive::AllGather, Algorithm::Ring, 1, kAnySize, [](const Terms& t) { return (t.n - 1) * (t.a + t.x); }},
    {Primitive::Broadcast, Algorithm::Ring, 0, kAnySize, [](const Terms& t) { return (t.n - 1) * (t.a + t.x); }},
    {Primitive::Reduce, Algorithm::Ring, 0, kAnySize, [](const Terms& t) { return (t.n - 1) * (t.a + t.x + t.g); }},
    // A parent sends to one child after the other, and receives from one after the other; the first addition overlaps.
    {Primitive::Broadcast, Algorithm::Tree, 0, kFullTrees, [](const Terms& t) { return depth(t.n) * (t.a + 2 * t.x); }},
    {Primitive::Reduce, Algorithm::Tree, 0, kFullTrees,
     [](const Terms& t) { return depth(t.n) * (t.a + 2 * t.x + t.g); }},
    {Primitive::AllReduce, Algorithm::Tree, 0, kFullTrees,
     [](const Terms& t) { return depth(t.n) * (2 * t.a + 4 * t.x + t.g); }},
    {Primitive::AllReduce, Algorithm::Direct, 1, kAnySize,
     [](const Terms& t) { return 2 * t.a + 2 * (t.n - 1) * t.x + (t.n - 1) * t.g; }},
    {Primitive::ReduceScatter, Algorithm::Direct, 1, kAnySize,
     [](const Terms& t) { return t.a + (t.n - 1) * (t.x + t.g); }},
    {Primitive::AllGather, Algorithm::Direct, 1, kAnySize, [](const Terms& t) { return t.a + (t.n - 1) * t.x; }},
    {Primitive::Broadcast, Algorithm::Direct, 0, kAnySize, [](const Terms& t) { return t.a + (t.n - 1) * t.x; }},
    {Primitive::Reduce, Algorithm::Direct, 0, kAnySize, [](const Terms& t) { return t.a + (t.n - 1) * t.x + t.g; }},
    {Primitive::AllToAll, Algorithm::Pairwise, 1, kAnySize, [](const Terms& t) { return (t.n - 1) * (t.a + t.x); }},
    {Primitive::AllToAll, Algorithm::SpreadOut, 1, kAnySize, [](const Terms& t) { return t.a + (t.n - 1) * t.x; }},
    {Primitive::Broadcast, Algorithm::Binomial, 0, kPowersOfTwo,
     [](const Terms& t) { return std::log2(t.n) * (t.a + t.x); }},
    {Primitive::Reduce, Algorithm::Binomial, 0, kPowersOfTwo,
     [](const Terms& t) { return std::log2(t.n) * (t.a + t.x + t.g); }},
    {Primitive::AllReduce, Algorithm::RecursiveDoubling, 0, kPowersOfTwo,
     [](const Terms& t) { return std::log2(t.n) * (t.a + t.x + t.g); }},
    {Primitive::AllGather, Algorithm::RecursiveDoubling, 1, kPowersOfTwo,
     [](const Terms& t) { return std::log2(t.n) * t.a + (t.n - 1) * t.x; }},
    {Primitive::AllReduce, Algorithm::HalvingDoubling, 1, kPowersOfTwo,
     [](const Terms& t) { return 2 * std::log2(t.n) * t.a + (t.n - 1) * (2 * t.x + t.g); }},
    {Primitive::ReduceScatter, Algorithm::HalvingDoubling, 1, kPowersOfTwo,
     [](const Terms& t) { return std::log2(t.n) * t.a + (t.n - 1) * (t.x + t.g); }},
    {Primitive::AllGather, Algorithm::HalvingDoubling, 1, kPowersOfTwo,
     [](const Terms& t) { return std::log2(t.n) * t.a + (t.n - 1) * t.x; }},
};

TEST(Cost, EqualsTheTextbooksForMessagesOfOneSlice) {
  for (const FormulaRow& row : kFormulas) {
    for (int size : row.sizes) {
      const size_t n = static_cast<size_t>(size);
      const size_t message = kOneShotCount;  // direct AllReduce in two shots
      const bool blocks = row.primitive != Primitive::AllReduce && row.parts_per_rank == 1;
      const size_t count = row.parts_per_rank == 1 && !blocks ? message * n : message;
      const double us = static_cast<double>(message) / 1000;
      const double expected = row.microseconds({static_cast<double>(size), 1, us, us / 2});
      EXPECT_NEAR(one_slice_us(make_call(row.primitive, size, count), row.algorithm), expected, 1e-6 * expected)
          << primitive_name(row.primitive) << " " << algorithm_name(row.algorithm) << " of " << size;
    }
  }
  // One shot: all to all, n - 1 additions of all. 8 ranks, 500 bytes.
  EXPECT_NEAR(one_slice_us(make_call(Primitive::AllReduce, 8, 500), Algorithm::Direct), 1 + 7 * 0.75, 1e-6);
}

// M nodes of n ranks, a network card for each: rings of parts S/n inside the node, of S/(nM) along each rail.
TEST(Cost, HierarchicalEqualsTheSumOfItsRings) {
  for (const auto& [m, n] : {std::pair{2, 2}, {2, 4}, {4, 2}, {4, 4}, {3, 3}, {1, 4}, {4, 1}}) {
    const Topology topology = Topology::parse(std::to_string(m) + "x" + std::to_string(n), m * n);
    Profile profile = micro_profile();
    profile.num_rails = n;
    const size_t count = static_cast<size_t>(m * n) * 1000;
    const double part = m * 1.0, piece = 1.0;  // S/n and S/(nM) in units of 1000 bytes: us on the inner link
    const double inside = 2 * (n - 1) * (1 + part) + (n - 1) * part / 2;
    const double between = 2 * (m - 1) * (10 + 10 * piece) + (m - 1) * piece / 2;
    EXPECT_NEAR(one_slice_us(make_call(Primitive::AllReduce, m * n, count, &topology),
                             find_builder(Primitive::AllReduce, Algorithm::Hierarchical), profile),
                inside + between, 0.01 * (inside + between))
        << m << "x" << n;
  }
}

// ---- Large cases ---------------------------------------------------------------------------------------------------

TEST(Cost, CountsTheBytesThatTheFormulasPredict) {
  const Topology topology = Topology::parse("2x3", 6);
  for (Primitive primitive : kCollectives) {
    for (Algorithm algorithm : algorithms_of(primitive)) {
      const Call call = make_call(primitive, 6, 6000, &topology);
      const LinkShape links{3, 1024};
      const size_t pass = max_pass_count(primitive, algorithm, 6, links.step_capacity(4), call.count);
      const CostReport report = simulate(call, find_builder(primitive, algorithm), links, 4, pass, micro_profile());
      double predicted = 0;
      for (int rank = 0; rank < 6; ++rank) {
        predicted += 4 * predicted_sent_elements(primitive, algorithm, rank, 6, 0, call.count);
      }
      EXPECT_NEAR(static_cast<double>(report.sent_bytes[0] + report.sent_bytes[1]), predicted, 1e-6)
          << primitive_name(primitive) << " " << algorithm_name(algorithm);
    }
  }
}

TEST(Cost, RingCrossesEachBoundaryOnce) {
  const Topology topology = Topology::parse("2x4", 8);
  const Call call = make_call(Primitive::AllReduce, 8, 8000, &topology);
  const CostReport report =
      simulate(call, find_builder(Primitive::AllReduce, Algorithm::Ring), {2, 1000}, 1, 8000, micro_profile());
  EXPECT_EQ(report.sent_bytes[1], 2u * 14 * 1000);
  EXPECT_EQ(report.sent_bytes[0], 6u * 14 * 1000);
}

TEST(Cost, RingOf256RanksIsSimulatedInSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const Call call = make_call(Primitive::AllReduce, 256, (size_t{64} << 20) / 4);
  const LinkShape links;
  const size_t pass = max_pass_count(Primitive::AllReduce, Algorithm::Ring, 256, links.step_capacity(4));
  const CostReport report =
      simulate(call, find_builder(Primitive::AllReduce, Algorithm::Ring), links, 4, pass, micro_profile());
  // A pass of three slices a step, whose sends never pause, and one of a slice a step, whose hops wait for one another.
  const double slice_us = 65.536, first = 510 * 3 * slice_us + 1, second = 510 * (1 + slice_us) + 255 * slice_us / 2;
  EXPECT_NEAR(report.seconds / kMicro, first + second, 1e-3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // 0.2 s when nothing else runs
}

}  // namespace
}  // namespace sixfold::comm
