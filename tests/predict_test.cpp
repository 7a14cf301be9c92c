// The closed formulas of what a rank sends, beside hand-computed values and beside what verify counted in a replay.
#include "runtime/comm/observe/predict.h"

#include <numeric>

#include "runtime/comm/schedule/verify.h"
#include "tests/harness.h"

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

TEST(Predict, RefusesWhatDoesNotExist) {
  EXPECT_THROW(predicted_sent_elements(Primitive::AllGather, Algorithm::Tree, 0, 2, 0, 1), CheckError);
  EXPECT_THROW(predicted_sent_elements(Primitive::AllToAll, Algorithm::Ring, 0, 2, 0, 1), CheckError);
  EXPECT_THROW(predicted_sent_elements(Primitive::AllReduce, Algorithm::Auto, 0, 2, 0, 1), CheckError);
  EXPECT_THROW(predicted_sent_elements(Primitive::Barrier, Algorithm::Ring, 0, 2, 0, 1), CheckError);
}

// Every builder, one shot and two: per rank exactly where the size divides the count, else in the sum over the ranks.
TEST(Predict, EqualsWhatTheReplayCounted) {
  for (Primitive primitive : kCollectives) {
    for (Algorithm algorithm : algorithms_of(primitive)) {
      for (int size : {1, 2, 3, 4, 5, 8, 17}) {
        const size_t n = static_cast<size_t>(size), two_shots = primitive == Primitive::AllReduce ? kOneShotCount : 40;
        for (size_t count : {size_t{0}, 3 * n, 3 * n + 1, (two_shots / n + 1) * n, (two_shots / n + 1) * n + 1}) {
          Call call;
          call.primitive = primitive;
          call.size = size;
          call.root = size / 2;
          call.count = count;
          const size_t pass_count = max_pass_count(primitive, algorithm, size, 3 * 700, count);
          const VerifyReport report = verify(call, find_builder(primitive, algorithm), 4, 700, pass_count);
          ASSERT_TRUE(report.ok()) << report.detail;

          const std::string what = std::string(primitive_name(primitive)) + " " +
                                   std::string(algorithm_name(algorithm)) + " size " + std::to_string(size) +
                                   " count " + std::to_string(count);
          double predicted_sum = 0;
          for (int rank = 0; rank < size; ++rank) {
            const double predicted = predicted_sent_elements(primitive, algorithm, rank, size, call.root, count);
            predicted_sum += predicted;
            if (count % n != 0) continue;
            EXPECT_DOUBLE_EQ(static_cast<double>(report.sent_elements[static_cast<size_t>(rank)]), predicted)
                << what << " rank " << rank;
          }
          const size_t sum = std::accumulate(report.sent_elements.begin(), report.sent_elements.end(), size_t{0});
          EXPECT_NEAR(static_cast<double>(sum), predicted_sum, 1e-6) << what;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sixfold::comm
