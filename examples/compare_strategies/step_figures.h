// Figures of each step of one rank, from what its log recorded. Pure.
//
// What belongs to a step. An operation does where it was issued within the step; time in which the rank stood still
// does where it lies within the step, whatever it stood still for: parameters that are gathered at the end of one step
// are waited for in the next. What comes before the first step, between steps and after the last one is in no step.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/comm/observe/comm_log.h"
#include "runtime/comm/observe/intervals.h"

namespace sixfold::compare_strategies {

/// One for each step: when it began and ended on this rank, by the clock of `records`. `step_seconds` says how long
/// each took. Steps of which nothing is recorded are empty.
std::vector<comm::Interval> step_windows(const comm::RankRecords& records, const std::vector<double>& step_seconds);

/// Of one row of the communication table in one step.
struct RowFigures {
  double calls = 0, bytes = 0;                  // bytes: LoggedOperation::bytes
  double sent_bytes = 0, sent_inter_bytes = 0;  // 0 where links are not counted
  double ms = 0;                                // from start to end, operations that run side by side counted each
  double exposed_ms = 0, late_ms = 0;           // late: of exposed, for ranks that came late; < 0: not known
};

struct RankFigures {
  struct Row {
    size_t row = 0;  // place in RankRecords::rows
    std::vector<RowFigures> steps;
  };
  std::vector<Row> rows;        // those of groups of several ranks that have operations in steps
  std::vector<double> busy_ms;  // of each step: at least one of these operations was under way
  size_t num_complete = 0;      // the first steps, of which the log had room for all
};
RankFigures figures_of(const comm::RankRecords& records, const std::vector<comm::Interval>& windows);

/// Which of `num_steps` steps count in figures of a step: all but the first, which touches fresh memory, where there
/// are more. The index of the first that counts.
inline size_t first_counted_step(size_t num_steps) {
  return num_steps > 1 ? 1 : 0;
}

}  // namespace sixfold::compare_strategies
