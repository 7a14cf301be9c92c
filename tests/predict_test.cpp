// The closed formulas of what a rank sends, beside hand-computed values and beside what verify counted in a replay.

#include <bit>
#include <numeric>

#include "tests/predicted.h"
#include "tests/verify_harness.h"

namespace sixfold::comm {
namespace {

TEST(Predict, ByHand) {
  const auto sent = [](Primitive primitive, Algorithm algorithm, int rank, int size, size_t count, int root = 0) {
    return predicted_sent_elements(primitive, algorithm, rank, size, root, count);
  };
  // 4 ranks, 12000 elements: parts of 3000; the tree is 0 -> {1, 2}, 1 -> {3}.
  EXPECT_EQ(sent(Primitive::AllReduce, Algorithm::Ring, 2, 4, 12000), 18000);
  EXPECT_EQ(sent(Primitive::AllReduce, Algorithm::Direct, 2, 4, 12000), 18000);
  EXPECT_EQ(sent(Primitive::AllReduce, Algorithm::Direct, 2, 4, 12), 36);
  EXPECT_EQ(sent(Primitive::AllReduce, Algorithm::Tree, 0, 4, 12000), 24000);
  EXPECT_EQ(sent(Primitive::AllReduce, Algorithm::Tree, 1, 4, 12000), 24000);
  EXPECT_EQ(sent(Primitive::AllReduce, Algorithm::Tree, 3, 4, 12000), 12000);
  EXPECT_EQ(sent(Primitive::Broadcast, Algorithm::Tree, 2, 4, 10, 1), 10);  // 1 -> {2, 3}, 2 -> {0}
  EXPECT_EQ(sent(Primitive::Broadcast, Algorithm::Tree, 3, 4, 10, 1), 0);
  EXPECT_EQ(sent(Primitive::Broadcast, Algorithm::Ring, 0, 4, 10, 1), 0);  // 1 -> 2 -> 3 -> 0
  EXPECT_EQ(sent(Primitive::Broadcast, Algorithm::Direct, 1, 4, 10, 1), 30);
  EXPECT_EQ(sent(Primitive::Reduce, Algorithm::Tree, 1, 4, 10, 1), 0);
  EXPECT_EQ(sent(Primitive::Reduce, Algorithm::Ring, 3, 4, 10, 1), 10);
  EXPECT_EQ(sent(Primitive::AllGather, Algorithm::Ring, 3, 4, 10), 30);
  EXPECT_EQ(sent(Primitive::ReduceScatter, Algorithm::Direct, 3, 4, 10), 30);
  EXPECT_EQ(sent(Primitive::AllToAll, Algorithm::Pairwise, 0, 4, 10), 30);
  EXPECT_EQ(sent(Primitive::AllReduce, Algorithm::Ring, 0, 2, (size_t{1} << 31) + 18), 2147483666.0);
}

// Binomial tree over 6 ranks from rank 1 on: 1 -> {5, 3, 2}, 3 -> {4}, 5 -> {0}. Two trees over the ranks 0 .. 4:
// 3 -> {1, 4}, 1 -> {0, 2} and, moved on by one, 4 -> {2, 0}, 2 -> {1, 3}.
TEST(Predict, TreesByHand) {
  const auto by_all = [](Primitive primitive, Algorithm algorithm, int size, int root) {
    std::vector<double> sent;
    for (int rank = 0; rank < size; ++rank) {
      sent.push_back(predicted_sent_elements(primitive, algorithm, rank, size, root, 10));
    }
    return sent;
  };
  EXPECT_EQ(by_all(Primitive::Broadcast, Algorithm::Binomial, 6, 1), (std::vector<double>{0, 30, 0, 10, 0, 10}));
  EXPECT_EQ(by_all(Primitive::AllReduce, Algorithm::DoubleTree, 5, 0), (std::vector<double>{10, 20, 20, 15, 15}));
  EXPECT_EQ(by_all(Primitive::AllReduce, Algorithm::RecursiveDoubling, 6, 0),
            (std::vector<double>{30, 10, 30, 10, 20, 20}));
  // Four active ranks: 2 * 3/4 of 10, and the pairs 0, 1 and 2, 3.
  EXPECT_EQ(by_all(Primitive::AllReduce, Algorithm::HalvingDoubling, 6, 0),
            (std::vector<double>{25, 10, 25, 10, 15, 15}));
  // Halves {0 .. 3} and {4, 5}, then {0, 1}, {2, 3}, {4}, {5}: rank 0 sends 2 blocks to rank 4, 2 to rank 2, 1 to
  // rank 1.
  EXPECT_EQ(by_all(Primitive::ReduceScatter, Algorithm::HalvingDoubling, 6, 0),
            (std::vector<double>{50, 60, 50, 60, 50, 50}));
  // Rank 0 has blocks 0, 1 and sends them, then the four of its half, then all but rank 1's to rank 1.
  EXPECT_EQ(by_all(Primitive::AllGather, Algorithm::HalvingDoubling, 6, 0),
            (std::vector<double>{110, 10, 110, 10, 30, 30}));
}

TEST(Predict, RefusesWhatDoesNotExist) {
  EXPECT_THROW(predicted_sent_elements(Primitive::AllGather, Algorithm::Tree, 0, 2, 0, 1), CheckError);
  EXPECT_THROW(predicted_sent_elements(Primitive::AllToAll, Algorithm::Ring, 0, 2, 0, 1), CheckError);
  EXPECT_THROW(predicted_sent_elements(Primitive::AllReduce, Algorithm::Auto, 0, 2, 0, 1), CheckError);
  EXPECT_THROW(predicted_sent_elements(Primitive::Barrier, Algorithm::Ring, 0, 2, 0, 1), CheckError);
}

/// Into how many parts an algorithm cuts the whole pass; the formula is exact per rank where they are equal. 1: always.
size_t num_parts(const Call& call, Algorithm algorithm, bool one_pass) {
  if (algorithm == Algorithm::DoubleTree) return 2;
  if (call.primitive != Primitive::AllReduce) return 1;
  switch (algorithm) {
    case Algorithm::Ring:
    case Algorithm::Direct:
      return one_pass ? 1 : static_cast<size_t>(call.size);
    case Algorithm::Hierarchical:
      return static_cast<size_t>(call.size);
    case Algorithm::HalvingDoubling:
      return std::bit_floor(static_cast<size_t>(call.size));
    default:
      return 1;
  }
}

/// Per rank where the formula is exact there, and always in the sum over the ranks.
void expect_predicted(Call call, Algorithm algorithm) {
  constexpr int kSlots = 4;
  constexpr size_t kSlotElements = 112;
  const VerifyReport report = verify_joined(call, algorithm, kSlots, kSlotElements);
  ASSERT_TRUE(report.ok()) << report.detail;
  const size_t pass_count =
      max_pass_count(call.primitive, algorithm, call.size, (kSlots - 1) * kSlotElements, call.count, call.topology);
  const size_t parts = num_parts(call, algorithm, call.count <= pass_count);
  const bool exact = call.count % parts == 0 && (call.count <= pass_count || pass_count % parts == 0);
  double predicted_sum = 0;
  for (call.rank = 0; call.rank < call.size; ++call.rank) {
    const double predicted = predicted_sent_elements(algorithm, call);
    predicted_sum += predicted;
    if (!exact) continue;
    EXPECT_NEAR(static_cast<double>(report.sent_elements[static_cast<size_t>(call.rank)]), predicted, 1e-6)
        << describe(call, algorithm) << " rank " << call.rank;
  }
  const size_t sum = std::accumulate(report.sent_elements.begin(), report.sent_elements.end(), size_t{0});
  EXPECT_NEAR(static_cast<double>(sum), predicted_sum, 1e-6) << describe(call, algorithm);
}

// Every builder; direct in one shot and in two.
TEST(Predict, EqualsWhatTheReplayCounted) {
  for (const auto& [primitive, algorithm] : all_builders()) {
    for (int size = 1; size <= 17; ++size) {
      const bool direct = primitive == Primitive::AllReduce && algorithm == Algorithm::Direct;
      const size_t n = static_cast<size_t>(size), many = direct ? kOneShotCount : 40;
      const size_t even = (many / n + 2) / 2 * 2 * n;  // divides by N and by 2
      for (size_t count : {size_t{0}, 16 * n, 16 * n + 1, even, even + 1}) {
        expect_predicted(make_call(primitive, size, count, size / 2), algorithm);
      }
    }
  }
}

TEST(Predict, EqualsWhatTheReplayCountedOnTopologies) {
  std::vector<Topology> topologies;
  for (const char* text : {"1x6", "2x3", "3x2", "6x1", "2x4", "4x4"}) {
    topologies.push_back(Topology::parse(text, (text[0] - '0') * (text[2] - '0')));
  }
  topologies.emplace_back(std::vector<int>{0, 1, 0, 1, 1, 0});
  topologies.emplace_back(std::vector<int>{0, 1, 1, 0, 1});
  for (const Topology& topology : topologies) {
    for (const auto& [primitive, algorithm] : all_builders(&topology)) {
      for (size_t count : {size_t{48}, size_t{49}, size_t{480}}) {
        for (int root : {0, topology.size() - 2}) {
          Call call = make_call(primitive, topology.size(), count, root);
          call.topology = &topology;
          expect_predicted(call, algorithm);
        }
      }
    }
  }
}

TEST(Predict, EqualsWhatTheReplayCountedOfUnevenBlocks) {
  for (const auto& [primitive, algorithm] : all_builders()) {
    if (!supports_counts(primitive, algorithm)) continue;
    for (int size = 1; size <= 9; ++size) {
      std::vector<size_t> counts;
      const int num_counts = primitive == Primitive::AllToAll ? size * size : size;
      for (int i = 0; i < num_counts; ++i) counts.push_back(static_cast<size_t>(i * i * 7 % 23));
      Call call = make_call(primitive, size, *std::max_element(counts.begin(), counts.end()));
      call.counts = &counts;
      expect_predicted(call, algorithm);
    }
  }
}

}  // namespace
}  // namespace sixfold::comm
