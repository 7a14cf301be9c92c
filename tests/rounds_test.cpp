// The rounds that verify counts are those of the theory.
#include <bit>
#include <cmath>

#include "tests/verify_harness.h"

namespace sixfold::comm {
namespace {

int rounds_of(Primitive primitive, Algorithm algorithm, int size, size_t count, int root = 0) {
  const Call call = make_call(primitive, size, count, root);
  const VerifyReport report = verify_joined(call, algorithm, 8, 64);
  EXPECT_TRUE(report.ok()) << describe(call, algorithm) << ": " << report.detail;
  return report.rounds;
}

TEST(Rounds, RingAndDirectAndPairwiseAreLinear) {
  for (int n : {1, 2, 3, 4, 7, 8, 16, 17}) {
    const size_t one_shot = static_cast<size_t>(n), two_shots = kOneShotCount;
    EXPECT_EQ(rounds_of(Primitive::AllReduce, Algorithm::Ring, n, one_shot), 2 * (n - 1));
    EXPECT_EQ(rounds_of(Primitive::ReduceScatter, Algorithm::Ring, n, 5), n - 1);
    EXPECT_EQ(rounds_of(Primitive::AllGather, Algorithm::Ring, n, 5), n - 1);
    EXPECT_EQ(rounds_of(Primitive::Broadcast, Algorithm::Ring, n, 5, n - 1), n - 1);
    EXPECT_EQ(rounds_of(Primitive::Reduce, Algorithm::Ring, n, 5, n - 1), n - 1);

    EXPECT_EQ(rounds_of(Primitive::AllReduce, Algorithm::Direct, n, one_shot), n - 1);
    EXPECT_EQ(rounds_of(Primitive::AllReduce, Algorithm::Direct, n, two_shots), n == 1 ? 0 : 2 * (n - 1));
    EXPECT_EQ(rounds_of(Primitive::ReduceScatter, Algorithm::Direct, n, 5), n - 1);
    EXPECT_EQ(rounds_of(Primitive::AllGather, Algorithm::Direct, n, 5), n - 1);
    EXPECT_EQ(rounds_of(Primitive::Broadcast, Algorithm::Direct, n, 5), n - 1);
    EXPECT_EQ(rounds_of(Primitive::Reduce, Algorithm::Direct, n, 5), n - 1);
    EXPECT_EQ(rounds_of(Primitive::AllToAll, Algorithm::Pairwise, n, 5), n - 1);
  }
}

TEST(Rounds, TreeIsLogarithmic) {
  for (int n = 1; n <= 64; n = n < 17 ? n + 1 : 2 * n - 2) {
    const int depth = static_cast<int>(std::floor(std::log2(n)));
    for (int root : {0, n / 2}) {
      EXPECT_LE(rounds_of(Primitive::Broadcast, Algorithm::Tree, n, 5, root), 2 * depth) << n;
      EXPECT_LE(rounds_of(Primitive::Reduce, Algorithm::Tree, n, 5, root), 2 * depth) << n;
    }
    EXPECT_LE(rounds_of(Primitive::AllReduce, Algorithm::Tree, n, 5), 4 * depth) << n;
  }
  // Full trees: the bound is met.
  EXPECT_EQ(rounds_of(Primitive::Broadcast, Algorithm::Tree, 15, 5), 6);
  EXPECT_EQ(rounds_of(Primitive::Reduce, Algorithm::Tree, 15, 5), 6);
  EXPECT_EQ(rounds_of(Primitive::AllReduce, Algorithm::Tree, 7, 5), 8);
}

int floor_log2(int n) {
  return std::bit_width(static_cast<unsigned>(n)) - 1;
}
int ceil_log2(int n) {
  return std::bit_width(static_cast<unsigned>(n - 1));
}

std::vector<int> many_sizes() {
  std::vector<int> sizes = {32, 33, 45, 63, 64};
  for (int n = 1; n <= 17; ++n) sizes.push_back(n);
  return sizes;
}

TEST(Rounds, AllToAllIsLinear) {
  for (int n : many_sizes()) {
    EXPECT_EQ(rounds_of(Primitive::AllToAll, Algorithm::Pairwise, n, 1), n - 1);
    EXPECT_EQ(rounds_of(Primitive::AllToAll, Algorithm::SpreadOut, n, 1), n - 1);
  }
}

TEST(Rounds, BinomialIsTheLogarithmRoundedUp) {
  for (int n : many_sizes()) {
    for (int root : {0, n / 3}) {
      EXPECT_EQ(rounds_of(Primitive::Broadcast, Algorithm::Binomial, n, 5, root), ceil_log2(n)) << n;
      EXPECT_EQ(rounds_of(Primitive::Reduce, Algorithm::Binomial, n, 5, root), ceil_log2(n)) << n;
    }
  }
}

TEST(Rounds, DoubleTreeIsLogarithmic) {
  for (int n : many_sizes()) {
    const int depth = floor_log2(n);
    for (int root : {0, n / 3}) {
      EXPECT_LE(rounds_of(Primitive::Broadcast, Algorithm::DoubleTree, n, 6, root), 2 * depth + 2) << n;
      EXPECT_LE(rounds_of(Primitive::Reduce, Algorithm::DoubleTree, n, 6, root), 2 * depth + 2) << n;
    }
    EXPECT_LE(rounds_of(Primitive::AllReduce, Algorithm::DoubleTree, n, 6), 4 * depth) << n;
  }
}

// Two rounds more for N that is no power of two; and AllGather needs none more.
TEST(Rounds, RecursiveDoubling) {
  for (int n : many_sizes()) {
    const int fold = std::has_single_bit(static_cast<unsigned>(n)) ? 0 : 2;
    EXPECT_EQ(rounds_of(Primitive::AllReduce, Algorithm::RecursiveDoubling, n, 5), floor_log2(n) + fold) << n;
    EXPECT_EQ(rounds_of(Primitive::AllGather, Algorithm::RecursiveDoubling, n, 5), ceil_log2(n)) << n;
  }
}

// The fold costs ReduceScatter and AllGather three rounds: in, out, and one exchange or hand-over in two messages.
TEST(Rounds, HalvingDoubling) {
  for (int n : many_sizes()) {
    const bool folds = !std::has_single_bit(static_cast<unsigned>(n));
    const int log = floor_log2(n);
    EXPECT_EQ(rounds_of(Primitive::AllReduce, Algorithm::HalvingDoubling, n, 130), 2 * log + (folds ? 2 : 0)) << n;
    EXPECT_EQ(rounds_of(Primitive::ReduceScatter, Algorithm::HalvingDoubling, n, 5), log + (folds ? 3 : 0)) << n;
    EXPECT_EQ(rounds_of(Primitive::AllGather, Algorithm::HalvingDoubling, n, 5), log + (folds ? 3 : 0)) << n;
  }
}

// One block a step where the links hold no more, and then N - 1 messages for each rank. Exchanges are of 8, 4, 2 and 1
// blocks of 9 elements.
TEST(Rounds, BlocksTravelTogetherOnlyWhereTheLinksHoldThem) {
  for (Primitive primitive : {Primitive::AllGather, Primitive::ReduceScatter}) {
    const Call call = make_call(primitive, 16, 9);
    EXPECT_EQ(verify_builder(call, Algorithm::HalvingDoubling, 3, 100).rounds, 15);
    EXPECT_EQ(verify_joined(call, Algorithm::HalvingDoubling, 3, 4).rounds, 15);
    EXPECT_EQ(verify_joined(call, Algorithm::HalvingDoubling, 3, 9).rounds, 4 + 2 + 1 + 1);
    EXPECT_EQ(verify_joined(call, Algorithm::HalvingDoubling, 3, 18).rounds, 2 + 1 + 1 + 1);
    EXPECT_EQ(verify_joined(call, Algorithm::HalvingDoubling, 3, 36).rounds, 4);
  }
}

TEST(Rounds, Hierarchical) {
  for (const auto& [nodes, per_node] : {std::pair(1, 8), std::pair(2, 4), std::pair(4, 2), std::pair(8, 1)}) {
    const Topology topology = Topology::parse(std::to_string(nodes) + "x" + std::to_string(per_node), 8);
    const auto rounds = [&](Primitive primitive, size_t count, int root) {
      Call call = make_call(primitive, 8, count, root);
      call.topology = &topology;
      return verify_joined(call, Algorithm::Hierarchical, 8, 64).rounds;
    };
    EXPECT_EQ(rounds(Primitive::AllToAll, 5, 0), 8 - 1);
    EXPECT_EQ(rounds(Primitive::AllReduce, 16, 0), 2 * (per_node - 1) + 2 * (nodes - 1));
    EXPECT_EQ(rounds(Primitive::ReduceScatter, 5, 0), nodes * (per_node - 1) + nodes - 1);
    EXPECT_EQ(rounds(Primitive::AllGather, 5, 0), nodes * (per_node - 1) + nodes - 1);
    for (int root : {0, 3, 6}) {
      EXPECT_LE(rounds(Primitive::Broadcast, 5, root), nodes + per_node - 2) << nodes;
      EXPECT_LE(rounds(Primitive::Reduce, 5, root), nodes + per_node - 2) << nodes;
    }
  }
}

TEST(Rounds, ARankReceivesOneMessageAtATime) {
  // Without the rotation all ranks would send to rank 0 first, then to rank 1, ...: 2N - 3 rounds instead of N - 1.
  const auto unrotated = [](const Call& call) {
    Schedule schedule = find_builder(Primitive::ReduceScatter, Algorithm::Direct)(call);
    std::sort(schedule.steps.begin(), schedule.steps.begin() + call.size - 1,
              [](const Step& a, const Step& b) { return a.send_peer < b.send_peer; });
    return schedule;
  };
  const VerifyReport report = verify(make_call(Primitive::ReduceScatter, 8, 5), unrotated, 8, 64, 64);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.rounds, 2 * 8 - 3);
}

}  // namespace
}  // namespace sixfold::comm
