// Every two of {ranks, nodes, links, slots, primitive and algorithm, count, dtype, op, root, in place, alignment, data}
// meet in some case; exact results for whole numbers, rounding bounds for reals. The whole product:
// build/collective_product.
#include "tests/collective_product.h"

#include "tests/harness.h"

namespace sixfold::test {
namespace {

TEST(CollectiveProduct, EveryTwoValuesMeet) {
  const CollectiveProduct product({1, 2, 3, 4, 5, 6, 7, 8, 9, 16});
  size_t num_cases = 0;
  for (const auto& [world_case, cases] : product.covering()) {
    run_ranks(
        world_case.num_ranks,
        [&cases = cases](comm::World& world) {
          for (const CollectiveCase& c : cases) {
            ASSERT_EQ(run_case(world.group(), world.memory(), c), "") << world.topology().to_string();
          }
        },
        world_case.options());
    num_cases += cases.size();
  }
  EXPECT_GT(num_cases, 400u);
  RecordProperty("cases", static_cast<int>(num_cases));
}

TEST(Covering, EveryPairOnceAtLeast) {
  const std::vector<Choice> choices =
      covering_choices({3, 4, 2, 5}, [](const Choice& c) { return !(c[0] == 2 && c[3] == 4); });
  std::set<std::tuple<size_t, size_t, size_t, size_t>> met;
  for (const Choice& c : choices) {
    EXPECT_FALSE(c[0] == 2 && c[3] == 4);
    for (size_t a = 0; a < 4; ++a) {
      for (size_t b = a + 1; b < 4; ++b) met.emplace(a, c[a], b, c[b]);
    }
  }
  EXPECT_EQ(met.size(), 3u * 4 + 3 * 2 + 3 * 5 + 4 * 2 + 4 * 5 + 2 * 5 - 1);
  EXPECT_LT(choices.size(), 40u) << "of 120";
}

}  // namespace
}  // namespace sixfold::test
