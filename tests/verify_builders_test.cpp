// verify passes for every builder: all ranks up to 17, 32 and 64, counts around multiples of the ranks, roots, in place
// or not, few and many slots.
#include "tests/verify_harness.h"

namespace sixfold::comm {
namespace {

class EveryBuilder : public testing::TestWithParam<BuilderCase> {};

// Up to 17 ranks all combinations; with 32 and 64 ranks, whose replays are the longest, the counts at which parts are
// empty, equal and unequal, and one root that is not rank 0.
TEST_P(EveryBuilder, IsProvedCorrect) {
  const auto [primitive, algorithm] = GetParam();
  const bool rooted = has_root(primitive);
  const bool blocks = !rooted && primitive != Primitive::AllReduce;
  for (int size : verified_sizes()) {
    const bool large = size > 17;
    const size_t n = static_cast<size_t>(size);
    std::vector<size_t> counts = {1, n, 2 * n + 3};
    if (large && blocks) counts = {1, 7};
    if (!large) counts.insert(counts.end(), {0, n - 1, n + 1, 7 * n + 5});
    std::vector<int> roots = {0};
    if (rooted) roots = large ? std::vector<int>{1} : std::vector<int>{0, 1 % size, size - 1};
    for (size_t count : counts) {
      for (int root : roots) {
        for (bool in_place : {false, true}) {
          for (int num_slots : {2, 8}) {
            // Three elements a slot: most steps end in a slice that is not full.
            const Call call = make_call(primitive, size, count, root, in_place);
            for (const VerifyReport& report :
                 {verify_builder(call, algorithm, num_slots, 3), verify_joined(call, algorithm, num_slots, 3)}) {
              ASSERT_TRUE(report.ok()) << describe(call, algorithm) << " slots " << num_slots << ": " << report.detail;
            }
          }
        }
      }
    }
  }
}

// Counts above kOneShotCount / N^2, where all-reduce direct turns to two shots; and a chunk limit of 1000 elements.
TEST_P(EveryBuilder, IsProvedCorrectOnLongBuffers) {
  const auto [primitive, algorithm] = GetParam();
  for (int size : {2, 3, 4}) {
    for (bool in_place : {false, true}) {
      const Call call = make_call(primitive, size, 10007, size - 1, in_place);
      const VerifyReport report = verify_builder(call, algorithm, 3, 500);
      ASSERT_TRUE(report.ok()) << describe(call, algorithm) << ": " << report.detail;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Verify, EveryBuilder, testing::ValuesIn(all_builders()),
                         [](const auto& test) { return case_name(test.param); });

}  // namespace
}  // namespace sixfold::comm
