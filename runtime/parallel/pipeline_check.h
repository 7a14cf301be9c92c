// Proof, time and picture of a pipeline schedule, without running it.
//
// The proof replays the lists of all stages on links that hold one message a lane: a send waits until the message
// before it has been received. An engine that starts transfers early or lets more of them wait only ever has fewer
// waits, so what ends here ends there.
#pragma once

#include <string>
#include <vector>

#include "runtime/parallel/pipeline_schedule.h"

namespace sixfold::parallel {

struct PipelineCheck {
  std::string fault;                // empty: none; else names stage and action
  std::vector<int> peak_in_flight;  // by stage: forwards of chunks whose backward has not run yet, at most
  bool ok() const { return fault.empty(); }
};
/// Replays `schedule` (one of `shape.num_stages` stages; shape.kind does not matter) and finds the first fault:
///
///   - a chunk's forward or backward of a micro-batch runs twice or never (backwards: unless no stage has any, as in an
///     evaluation), or a chunk's backwards run out of order
///   - a computation whose input the stage has neither computed nor received; a send of what it has not computed
///   - a receive that meets another message than the one it names, a message that nobody receives
///   - stages that wait for one another for good
PipelineCheck check_schedule(const PipelineShape& shape, const PipelineSchedule& schedule);

struct TimedAction {
  Action action;  // Forward or Backward
  double start = 0, end = 0;
};
struct PipelineTimes {
  std::vector<std::vector<TimedAction>> stages;
  double total = 0;   // until the last stage is done
  double bubble = 0;  // the share of all stages' time in which they have no work
};
/// When everything happens if each chunk's forward and backward take so long, in any unit, and transfers no time.
/// Throws CheckError for a schedule with a fault.
PipelineTimes simulate(const PipelineShape& shape, const PipelineSchedule& schedule, double forward, double backward);

/// The schedule as text: a row a stage, F and B with the micro-batch (and .chunk where there are several), a backward
/// twice as wide as a forward, and a last line with the bubble. For --show-pipeline.
std::string draw_schedule(const PipelineShape& shape, const PipelineSchedule& schedule);

}  // namespace sixfold::parallel
