#include "runtime/train/lr_schedule.h"

#include <gtest/gtest.h>

namespace sixfold::train {
namespace {

TEST(LearningRate, WarmsUpLinearlyThenFollowsACosine) {
  const LrSchedule schedule{1.0f, 0.2f, 4, 13};  // the decay goes from step 4 to step 12
  EXPECT_FLOAT_EQ(learning_rate(schedule, 0), 0.25f);
  EXPECT_FLOAT_EQ(learning_rate(schedule, 1), 0.5f);
  EXPECT_FLOAT_EQ(learning_rate(schedule, 3), 1.0f);
  EXPECT_FLOAT_EQ(learning_rate(schedule, 4), 1.0f);
  // cos(pi/4) = 0.70710678: 0.2 + 0.8 * (1 + 0.70710678) / 2
  EXPECT_FLOAT_EQ(learning_rate(schedule, 6), 0.88284271f);
  EXPECT_FLOAT_EQ(learning_rate(schedule, 8), 0.6f);
  EXPECT_FLOAT_EQ(learning_rate(schedule, 10), 0.31715729f);
  EXPECT_FLOAT_EQ(learning_rate(schedule, 12), 0.2f);
  EXPECT_FLOAT_EQ(learning_rate(schedule, 13), 0.2f);
  EXPECT_FLOAT_EQ(learning_rate(schedule, 1000), 0.2f);
}

TEST(LearningRate, WithoutWarmUpAndInShortRuns) {
  EXPECT_FLOAT_EQ(learning_rate({1.0f, 0.2f, 0, 3}, 0), 1.0f);
  EXPECT_FLOAT_EQ(learning_rate({1.0f, 0.2f, 0, 3}, 1), 0.6f);
  EXPECT_FLOAT_EQ(learning_rate({1.0f, 0.2f, 0, 1}, 0), 1.0f);   // one step: no decay to speak of
  EXPECT_FLOAT_EQ(learning_rate({1.0f, 0.2f, 10, 5}, 4), 0.5f);  // the run ends within the warm-up
  EXPECT_FLOAT_EQ(learning_rate({1.0f, 0.2f, 4, 5}, 4), 1.0f);
}

}  // namespace
}  // namespace sixfold::train
