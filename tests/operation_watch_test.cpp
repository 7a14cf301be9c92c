// How time is charged to operations, at times written by hand.
#include "runtime/comm/observe/operation_watch.h"

#include <gtest/gtest.h>

namespace sixfold::comm {
namespace {

/// A rank without links.
struct Rig {
  FlightRecorder recorder{SharedRegion::anonymous(FlightRecorder::region_bytes(1)), 0, {0}};
  RankLock lock;
  CommTable table{lock};
  CommLog log{1 << 20, table, lock};
  OperationWatch watch{recorder, table, &log, false};
  WatchedGroup group = watch.add_group("world", {0, 1});
  RecordedName tag{"x"};
  PhasedRow& phased = table.row("x", Primitive::AllReduce, Algorithm::Ring, "own", 2);
  CommRow& row = phased.of(CommPhase::Outside);
  uint64_t sequence = 0;

  WatchedOperation start(double now_s) {
    WatchedOperation operation = watch.issue(phased, {group, tag, {}, sequence++, -1, -1, 100, 50}, now_s);
    watch.start(operation, now_s);
    return operation;
  }
  const LoggedOperation& logged(const WatchedOperation& operation) { return *log.find(operation.logged); }
};

// a from 1 to 6, its last rank there at 5; b from 2 to 9, at 8. The rank stands still from 3 to 10, for b from 6.5 to 9
// within that. Late ranks: 3 to 5, and 3 to 8.
TEST(OperationWatch, CountsWhatIsNestedOnce) {
  Rig rig;
  const WatchedOperation a = rig.start(1), b = rig.start(2);
  {
    OperationWatch::Standstill outer(rig.watch, 3);
    rig.watch.finish(a, 6, {70, 20}, 5, true);
    {
      OperationWatch::Standstill inner(rig.watch, 6.5);
      rig.watch.finish(b, 9, kNothingSent, 8, true);
      inner.count(b, 9);
    }
    outer.count(a, 10);
  }
  EXPECT_EQ(rig.row.calls, 2);
  EXPECT_EQ(rig.row.bytes, 200u);
  EXPECT_EQ(rig.row.predicted_sent_bytes, 100);
  EXPECT_EQ(rig.row.sent_bytes, 70u);
  EXPECT_EQ(rig.row.sent_inter_bytes, 20u);
  EXPECT_EQ(rig.row.seconds, 5 + 7);
  EXPECT_EQ(rig.row.wait_seconds, 4 + 6);
  EXPECT_EQ(rig.row.exposed_seconds, 7);
  EXPECT_EQ(rig.row.exposed_wait_seconds, 5);
  EXPECT_EQ(rig.table.busy_seconds(), 8);
  EXPECT_EQ(rig.logged(a).sent_intra_bytes, 50);
  EXPECT_EQ(rig.logged(a).exposed_s, 7);
  EXPECT_EQ(rig.logged(a).exposed_wait_s, 5);
  EXPECT_EQ(rig.logged(b).wait_s, 6);
  EXPECT_EQ(rig.logged(b).exposed_s, 0);
  ASSERT_EQ(rig.log.records(0).exposed.size(), 1u);
  EXPECT_EQ(rig.log.records(0).exposed[0].end_s, 10);
}

// Late ranks of an operation that the rank does not stand still for, or not then, or that are not known.
TEST(OperationWatch, ChargesLateRanksOnlyToThoseWhoWait) {
  Rig rig;
  const WatchedOperation a = rig.start(1), b = rig.start(1), c = rig.start(1);
  rig.watch.finish(a, 3, kNothingSent, 2, false);
  {
    OperationWatch::Standstill still(rig.watch, 4);
    rig.watch.finish(b, 5, kNothingSent, 5, false);
    rig.watch.finish(c, 6, kNothingSent, 3, true);  // had come before
    still.count(c, 6);
  }
  const WatchedOperation d = rig.start(7);
  {
    OperationWatch::Standstill still(rig.watch, 7);
    rig.watch.finish(d, 8, {}, 0, true);
    still.count(d, 8);
  }
  EXPECT_EQ(rig.row.exposed_seconds, 3);
  EXPECT_EQ(rig.row.exposed_wait_seconds, 0);
  EXPECT_EQ(rig.row.wait_seconds, 1 + 4 + 2);
  EXPECT_LT(rig.logged(d).wait_s, 0);
  EXPECT_LT(rig.logged(d).sent_intra_bytes, 0);
  EXPECT_EQ(rig.table.busy_seconds(), 5 + 1);
}

// b is queued behind a. Standing still for b from 3 to 10, the rank waits for those late for a, 3 to 5, and for b, 6 to
// 7: that is more than b waits once it may move. Stillness lasts until the call returns, past b's end at 9.
TEST(OperationWatch, ChargesAnOperationForThoseInFrontOfIt) {
  Rig rig;
  const WatchedOperation a = rig.start(1);
  WatchedOperation b = rig.watch.issue(rig.phased, {rig.group, rig.tag, {}, rig.sequence++, -1, -1, 100, 50}, 2);
  {
    OperationWatch::Standstill still(rig.watch, 3);
    rig.watch.finish(a, 6, kNothingSent, 5, true);
    rig.watch.start(b, 6);
    rig.watch.finish(b, 9, kNothingSent, 7, true);
    still.count(b, 10);
  }
  EXPECT_EQ(rig.logged(b).wait_s, 1);
  EXPECT_EQ(rig.logged(b).exposed_wait_s, 2 + 1);
  EXPECT_EQ(rig.logged(b).exposed_s, 7);
  EXPECT_EQ(rig.logged(a).exposed_s, 0);
}

// a from 1 to 4 and b from 2 to 8 are issued before the step, which lasts from 5 to 11; c from 9 to 14 in it. The rank
// stands still for b from 6 to 8, in the step, late ranks until 7; and for c from 12 to 14, after it.
TEST(OperationWatch, TellsStepsFromWhatIsOutside) {
  Rig rig;
  const WatchedOperation a = rig.start(1), b = rig.start(2);
  rig.watch.finish(a, 4, {10, 4}, 4, false);
  rig.table.set_step(3, 5);
  {
    OperationWatch::Standstill still(rig.watch, 6);
    rig.watch.finish(b, 8, {20, 5}, 7, true);
    still.count(b, 8);
  }
  const WatchedOperation c = rig.start(9);
  rig.table.set_step(0, 11);
  {
    OperationWatch::Standstill still(rig.watch, 12);
    rig.watch.finish(c, 14, {40, 7}, 9, true);
    still.count(c, 14);
  }
  const std::vector<CommRow> outside = rig.table.rows(CommPhase::Outside), step = rig.table.rows(CommPhase::Step);
  ASSERT_EQ(outside.size(), 1u);
  EXPECT_EQ(outside[0].calls, 2);
  EXPECT_EQ(outside[0].bytes, 200u);
  EXPECT_EQ(outside[0].sent_bytes, 30u);
  EXPECT_EQ(outside[0].sent_inter_bytes, 9u);
  EXPECT_EQ(outside[0].seconds, 3 + 6);
  EXPECT_EQ(outside[0].wait_seconds, 3 + 5);
  EXPECT_EQ(outside[0].exposed_seconds, 2);
  EXPECT_EQ(outside[0].exposed_wait_seconds, 0);
  ASSERT_EQ(step.size(), 1u);
  EXPECT_EQ(step[0].calls, 1);
  EXPECT_EQ(step[0].bytes, 100u);
  EXPECT_EQ(step[0].sent_bytes, 40u);
  EXPECT_EQ(step[0].seconds, 5);
  EXPECT_EQ(step[0].exposed_seconds, 2);
  EXPECT_EQ(step[0].exposed_wait_seconds, 1);
  EXPECT_EQ(rig.table.busy_seconds(CommPhase::Outside), 4 + 3);
  EXPECT_EQ(rig.table.busy_seconds(CommPhase::Step), 3 + 2);
  const std::vector<CommRow> both = rig.table.rows();
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].calls, 3);
  EXPECT_EQ(both[0].exposed_seconds, 4);
  EXPECT_EQ(rig.table.busy_seconds(), 12);
  EXPECT_EQ(rig.logged(a).step, 0);
  EXPECT_EQ(rig.logged(c).step, 3);
}

// What is not known of one operation is not known of the row.
TEST(OperationWatch, RowsSayWhatIsNotKnown) {
  Rig rig;
  rig.watch.finish(rig.start(1), 3, {10, 4}, 2, false);
  EXPECT_TRUE(rig.row.knows_waits && rig.row.knows_inter);
  rig.watch.finish(rig.start(4), 5, {10, -1}, 4, false);
  EXPECT_TRUE(rig.row.knows_waits);
  EXPECT_FALSE(rig.row.knows_inter);
  rig.watch.finish(rig.start(6), 7, {10, 0}, 0, false);
  EXPECT_FALSE(rig.row.knows_waits);
  rig.table.reset();
  EXPECT_TRUE(rig.row.knows_waits && rig.row.knows_inter);
}

TEST(OperationWatch, ShortStretchesAreInTheSumAlone) {
  Rig rig;
  const WatchedOperation a = rig.start(1);
  for (int i = 0; i < 3; ++i) {
    OperationWatch::Standstill still(rig.watch, 2 + i);
    still.count(a, 2 + i + kShortestInterval / 2);
  }
  EXPECT_NEAR(rig.logged(a).exposed_s, 1.5 * kShortestInterval, 1e-12);
  EXPECT_TRUE(rig.log.records(0).exposed.empty());
}

}  // namespace
}  // namespace sixfold::comm
