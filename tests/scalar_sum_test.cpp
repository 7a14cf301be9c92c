#include "runtime/train/scalar_sum.h"

#include <cmath>
#include <limits>

#include "tests/harness.h"

namespace sixfold::train {
namespace {

TEST(ScalarSum, IsExactAndSaysWhenItCannotBe) {
  for (int num_ranks : {1, 2, 3, 5}) {
    test::run_ranks(num_ranks, [&](comm::World& world) {
      comm::Communicator& group = world.group();
      // Multiples of 2^-32 add up without any error, where doubles of this size in f32 would not.
      const double value = 123456.0 * (world.rank() + 1) + 0x1p-30 * (world.rank() + 1);
      const int sum_of_ranks = num_ranks * (num_ranks + 1) / 2;
      EXPECT_EQ(sum_over_ranks(world.memory(), group, value, "test"), 123456.0 * sum_of_ranks + 0x1p-30 * sum_of_ranks);
      EXPECT_EQ(sum_over_ranks(world.memory(), group, -value, "test"),
                -123456.0 * sum_of_ranks - 0x1p-30 * sum_of_ranks);
      const bool last = world.rank() == num_ranks - 1;
      for (double bad : {std::nan(""), std::numeric_limits<double>::infinity(), 0x1p31}) {
        EXPECT_TRUE(std::isnan(sum_over_ranks(world.memory(), group, last ? bad : 1.0, "test")));
      }
      EXPECT_EQ(sum_over_ranks(world.memory(), group, 1.0, "test"), num_ranks);
    });
  }
}

}  // namespace
}  // namespace sixfold::train
