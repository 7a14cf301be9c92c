// What operations side by side amount to, worked out by hand.
#include "runtime/comm/observe/intervals.h"

#include <gtest/gtest.h>

#include "runtime/comm/observe/comm_table.h"

namespace sixfold::comm {
namespace {

using Intervals = std::vector<Interval>;

TEST(Intervals, WhatBackwardHidesOfTwoBuckets) {
  const Overlap overlap = overlap_of(Intervals{{0, 10}}, Intervals{{4, 9}, {9, 14}});
  EXPECT_DOUBLE_EQ(overlap.communication, 10);
  EXPECT_DOUBLE_EQ(overlap.exposed, 4);
  EXPECT_DOUBLE_EQ(overlap.hidden_share(), 0.6);
}

// Communication 0-6, though its parts add up to 8; compute leaves 0-1 and 3-6 of it.
TEST(Intervals, OperationsSideBySideCountOnce) {
  const Overlap overlap = overlap_of(Intervals{{1, 2}, {1.5, 3}}, Intervals{{2, 6}, {0, 4}});
  EXPECT_DOUBLE_EQ(overlap.communication, 6);
  EXPECT_DOUBLE_EQ(overlap.exposed, 4);
  EXPECT_DOUBLE_EQ(overlap_of(Intervals{{0, 1}}, {}).hidden_share(), 1);
  EXPECT_DOUBLE_EQ(overlap_of({}, Intervals{{0, 1}}).hidden_share(), 0);
}

TEST(Intervals, UnionAndDifference) {
  EXPECT_EQ(union_of(Intervals{{5, 6}, {0, 2}, {1, 3}, {3, 4}, {0.5, 1}}), (Intervals{{0, 4}, {5, 6}}));
  EXPECT_EQ(difference(Intervals{{0, 10}}, Intervals{{2, 3}, {-1, 1}, {9, 12}}), (Intervals{{1, 2}, {3, 9}}));
  EXPECT_EQ(difference(Intervals{{0, 1}, {2, 3}}, Intervals{{0, 5}}), Intervals{});
  EXPECT_EQ(difference(Intervals{{0, 1}, {2, 3}}, Intervals{{1, 2}}), (Intervals{{0, 1}, {2, 3}}));
  Intervals intervals = {{5, 6}, {0, 2}, {1, 3}, {0.5, 1}};
  EXPECT_DOUBLE_EQ(union_length(intervals), 4);
  EXPECT_DOUBLE_EQ(union_length({}), 0);
}

// nccl-tests' PERFORMANCE.md: 2 (n-1)/n for an all-reduce.
TEST(Intervals, BandwidthOfAGigabyteInASecond) {
  const Bandwidth result = bandwidth(1e9, 1, busbw_factor(Primitive::AllReduce, 4));
  EXPECT_DOUBLE_EQ(result.algbw, 1.0);
  EXPECT_DOUBLE_EQ(result.busbw, 1.5);
  EXPECT_EQ(bandwidth(1e9, 0, 1.5).busbw, 0);
}

}  // namespace
}  // namespace sixfold::comm
