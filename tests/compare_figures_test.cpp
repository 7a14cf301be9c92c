// What compare_strategies makes of the records of ranks: figures of steps, timelines, and what two placements say of a
// verdict. Records are made by hand.
#include <gtest/gtest.h>

#include "examples/compare_strategies/comparison.h"
#include "examples/compare_strategies/step_figures.h"
#include "examples/compare_strategies/tables.h"
#include "examples/compare_strategies/timeline.h"

namespace sixfold::compare_strategies {
namespace {

// Step 2 of a rank: forward 10.0 to 10.4, of which 10.1 to 10.2 stood still, 0.04 for a late rank; backward to 11.0;
// and an all-reduce that started at 10.5, for which all were there at 10.6, and that ended at 10.9.
TEST(Timeline, TellsComputeFromTransferAndFromLateRanks) {
  comm::RankRecords records;
  records.rows = {{"dp.grads", comm::Primitive::AllReduce, comm::Algorithm::Ring, "own", 2},
                  {"tp.loss", comm::Primitive::AllReduce, comm::Algorithm::Ring, "own", 1}};
  const auto operation = [&](int step, uint32_t row, double enqueued, double started, double ended, double wait) {
    comm::LoggedOperation& op = records.operations.emplace_back();
    op.step = step;
    op.row = row;
    op.enqueued_s = enqueued;
    op.started_s = started;
    op.ended_s = ended;
    op.wait_s = wait;
  };
  operation(1, 0, 8.0, 8.0, 9.0, 0);  // of the step before
  operation(2, 0, 10.45, 10.5, 10.9, 0.1);
  operation(2, 1, 10.2, 10.2, 10.3, 0);  // among one rank: nothing moves
  operation(2, 0, 12.0, 12.0, 12.5, 0);  // after the step has ended
  records.exposed = {{8.5, 9.0, 0, 0}, {10.1, 10.2, 0.04, 1}};
  using Kind = comm::ComputeSpan::Kind;
  records.spans = {{10.05, 10.1, 2, 0, 3, Kind::Forward},  // of a unit: within the action
                   {10.0, 10.4, 2, 0, -1, Kind::Forward},
                   {10.4, 11.0, 2, 0, -1, Kind::Backward},
                   {13.0, 13.5, 3, 0, -1, Kind::Forward}};
  const std::vector<comm::Interval> windows = step_windows(records, {1.0, 1.0, 1.0});
  const RankTimeline timeline = timeline_of(records, 2, windows[1], {1, 2, 1, 1});
  EXPECT_DOUBLE_EQ(timeline.start, 10.0);
  EXPECT_DOUBLE_EQ(timeline.end, 11.0);
  EXPECT_NEAR(timeline.seconds_of("forward"), 0.4, 1e-12);
  EXPECT_NEAR(timeline.seconds_of("backward"), 0.6, 1e-12);
  EXPECT_NEAR(timeline.seconds_of("late"), 0.04, 1e-12);
  EXPECT_NEAR(timeline.seconds_of("in the way"), 0.06, 1e-12);
  ASSERT_NE(timeline.track("dp"), nullptr);
  ASSERT_EQ(timeline.track("dp")->intervals.size(), 1u);
  EXPECT_DOUBLE_EQ(timeline.track("dp")->intervals[0].start, 10.6);
  EXPECT_DOUBLE_EQ(timeline.track("dp")->intervals[0].end, 10.9);
  EXPECT_EQ(timeline.track("tp"), nullptr);
}

// Two steps of one second each, from 10 and from 20. A bucket of step 1 is waited for in step 2, and weights are
// gathered before the first step and after the last one.
TEST(StepFigures, TimeCountsWhereItLies) {
  comm::RankRecords records;
  records.rows = {{"dp.grads", comm::Primitive::AllReduce, comm::Algorithm::Ring, "own", 2},
                  {"tp.loss", comm::Primitive::AllReduce, comm::Algorithm::Ring, "own", 1}};
  const auto operation = [&](int step, uint32_t row, double enqueued, double ended, double exposed, double late) {
    comm::LoggedOperation& op = records.operations.emplace_back();
    op.step = step;
    op.row = row;
    op.enqueued_s = op.started_s = enqueued;
    op.ended_s = ended;
    op.exposed_s = exposed;
    op.exposed_wait_s = late;
    op.bytes = 100;
    op.sent_intra_bytes = 60;
    op.sent_inter_bytes = 40;
  };
  operation(0, 0, 9.0, 9.5, 0.5, 0);         // start-up
  operation(1, 0, 10.2, 20.4, 0.301, 0.05);  // 0.001 of it in stretches too short to be recorded
  operation(2, 0, 20.1, 20.6, 0, 0);
  operation(2, 1, 20.2, 20.9, 0.2, 0);  // among one rank
  operation(2, 0, 22.0, 23.0, 1.0, 0);  // after the last step
  records.exposed = {
      {9.0, 9.5, 0, 0}, {10.2, 10.3, 0, 1}, {20.2, 20.4, 0.05, 1}, {20.7, 20.9, 0, 3}, {22.0, 23.0, 0, 4}};
  using Kind = comm::ComputeSpan::Kind;
  records.spans = {{10.0, 11.0, 1, 0, -1, Kind::Forward}, {20.0, 21.0, 2, 0, -1, Kind::Forward}};
  const RankFigures figures = figures_of(records, step_windows(records, {1.0, 1.0}));
  ASSERT_EQ(figures.rows.size(), 1u);
  ASSERT_EQ(figures.rows[0].steps.size(), 2u);
  const RowFigures &first = figures.rows[0].steps[0], &second = figures.rows[0].steps[1];
  for (const RowFigures* step : {&first, &second}) {
    EXPECT_EQ(step->calls, 1);
    EXPECT_EQ(step->bytes, 100);
    EXPECT_EQ(step->sent_bytes, 100);
    EXPECT_EQ(step->sent_inter_bytes, 40);
  }
  EXPECT_NEAR(first.exposed_ms, 101, 1e-9);
  EXPECT_NEAR(first.late_ms, 0, 1e-9);
  EXPECT_NEAR(second.exposed_ms, 200, 1e-9);
  EXPECT_NEAR(second.late_ms, 50, 1e-9);
  EXPECT_NEAR(second.ms, 500, 1e-9);
  EXPECT_NEAR(figures.busy_ms.at(0), 800, 1e-9);  // from 10.2 on
  EXPECT_NEAR(figures.busy_ms.at(1), 600, 1e-9);  // until 20.6, two of them side by side
  EXPECT_EQ(figures.num_complete, 2u);
  records.num_dropped = 1;  // the log ended somewhere in step 2
  EXPECT_EQ(figures_of(records, step_windows(records, {1.0, 1.0})).num_complete, 1u);
  EXPECT_EQ(first_counted_step(1), 0u);
  EXPECT_EQ(first_counted_step(2), 1u);
}

// Where a stream stood still there is a sum without intervals, and late ranks are not known: not in that step.
TEST(StepFigures, ExposedTimeOfStreamsHasNoLateRanks) {
  comm::RankRecords records;
  records.rows = {{"dp.grads", comm::Primitive::AllReduce, comm::Algorithm::Ring, "own", 2}};
  for (int step : {1, 1, 2}) {
    comm::LoggedOperation& op = records.operations.emplace_back();
    op.step = step;
    op.enqueued_s = op.started_s = step + 0.25;
    op.ended_s = step + 0.5;
    op.exposed_s = 0.125;
  }
  records.operations[0].exposed_wait_s = -1;
  records.spans = {{1.0, 2.0, 1, 0, -1, comm::ComputeSpan::Kind::Forward},
                   {2.0, 3.0, 2, 0, -1, comm::ComputeSpan::Kind::Forward}};
  const RankFigures figures = figures_of(records, step_windows(records, {1.0, 1.0}));
  ASSERT_EQ(figures.rows.size(), 1u);
  EXPECT_NEAR(figures.rows[0].steps[0].exposed_ms, 250, 1e-9);
  EXPECT_NEAR(figures.rows[0].steps[1].exposed_ms, 125, 1e-9);
  EXPECT_LT(figures.rows[0].steps[0].late_ms, 0);
  EXPECT_EQ(figures.rows[0].steps[1].late_ms, 0);
}

TEST(StepFigures, SumsOfAxesAreTakenInEachStep) {
  StrategyRecord record;
  record.mesh = {1, 2, 1, 2};
  record.num_counted = 3;
  for (const char* tag : {"dp.grads", "dp.tokens", "tp.loss"}) {
    CommEntry& entry = record.comm.emplace_back();
    entry.tag = tag;
    entry.exposed_steps = {1, 10, 2};
    entry.late_steps = {1, 4, 0};
  }
  record.comm[1].exposed_steps = {20, 5, 0};
  EXPECT_EQ(record.exposed_steps({"dp"}), (std::vector<double>{21, 15, 2}));
  EXPECT_EQ(record.transfer_steps({"dp"}), (std::vector<double>{19, 7, 2}));
  EXPECT_EQ(record.transfer_steps({"dp", "tp"}), (std::vector<double>{19, 13, 4}));
}

TEST(Placement, AgreesOnlyWhereTheRunsDifferMoreThanTheirSteps) {
  Placement placement;
  placement.verdict = "tp";
  placement.first.inside = "tp";
  placement.second.inside = "dp";
  const auto judged = [&](std::vector<double> tp_inside, std::vector<double> dp_inside) {
    placement.first.exposed_steps = std::move(tp_inside);
    placement.second.exposed_steps = std::move(dp_inside);
    return placement.agreement();
  };
  // Quartiles: 1.75 to 3.25, of the same and more.
  EXPECT_EQ(judged({1, 2, 3, 4}, {4, 5, 6, 7}), Agreement::Agrees);
  EXPECT_EQ(judged({4, 5, 6, 7}, {1, 2, 3, 4}), Agreement::Disagrees);
  EXPECT_EQ(judged({1, 2, 3, 4}, {2, 3, 4, 5}), Agreement::TooClose);
  EXPECT_EQ(agreement_text(placement), "too close to tell (1.8 to 3.2 against 2.8 to 4.2 ms)");
  EXPECT_EQ(judged({1}, {100}), Agreement::TooClose);  // of one step nobody knows how much it varies
}

// dp 2 x tp 2 on two nodes of two: neighbours differ in tp; the other way round in dp.
TEST(Placement, OneOfTwoAxesLiesInsideTheNodes) {
  const parallel::MeshShape mesh{1, 2, 1, 2};
  const auto topology = comm::Topology::parse("2x2", 4);
  EXPECT_EQ(ranks_in_order(mesh, RankOrder::Outermost), (std::vector<int>{0, 2, 1, 3}));
  const AxesByPlace usual = place_axes(mesh, ranks_in_order(mesh, RankOrder::Innermost), topology);
  EXPECT_EQ(usual.inside, std::vector<std::string>{"tp"});
  EXPECT_EQ(usual.across, std::vector<std::string>{"dp"});
  const AxesByPlace other = place_axes(mesh, ranks_in_order(mesh, RankOrder::Outermost), topology);
  EXPECT_EQ(other.inside, std::vector<std::string>{"dp"});
  EXPECT_EQ(other.across, std::vector<std::string>{"tp"});
  EXPECT_EQ(place_axes({1, 4, 1, 1}, {0, 1, 2, 3}, topology).across, std::vector<std::string>{"dp"});
}

}  // namespace
}  // namespace sixfold::compare_strategies
