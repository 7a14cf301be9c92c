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
