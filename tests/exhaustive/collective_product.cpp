// The full product of collective_product.h on thread ranks: hundreds of thousands of cases, minutes. CTest label
// "exhaustive"; tests/run.sh leaves it out.
#include "tests/collective_product.h"

#include "tests/harness.h"

namespace sixfold::test {
namespace {

TEST(CollectiveProduct, All) {
  const CollectiveProduct product({1, 2, 3, 4, 5, 6, 7, 8, 9, 16});
  size_t num_cases = 0;
  product.for_all([&](const WorldCase& world_case, const std::vector<CollectiveCase>& cases) {
    run_ranks(
        world_case.num_ranks,
        [&](comm::World& world) {
          for (const CollectiveCase& c : cases) {
            ASSERT_EQ(run_case(world.group(), world.memory(), c), "") << world.topology().to_string();
          }
        },
        world_case.options(), 3600);
    num_cases += cases.size();
    std::printf("%d ranks on %s, %d slots%s: %zu cases, %zu in all\n", world_case.num_ranks,
                world_case.topology.c_str(), world_case.num_slots, world_case.in_place_links ? ", in place" : "",
                cases.size(), num_cases);
    std::fflush(stdout);
  });
}

}  // namespace
}  // namespace sixfold::test
