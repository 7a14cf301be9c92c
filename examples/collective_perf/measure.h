// How long an operation takes: medians over rounds, in which backends take turns, since machines are shared and their
// speed drifts.
#pragma once

#include <vector>

#include "examples/collective_perf/operation.h"

namespace sixfold::collective_perf {

struct Measured {
  double seconds = 0;
  double versus_seconds = 0, ratio = 0;  // with a second backend; ratio: median over the rounds of versus / own
  int64_t num_wrong = 0;                 // elements, over all ranks
  int num_rounds = 0;
};

/// The middle one, of an even number the upper. Not of none.
double median(std::vector<double> values);
/// The largest of what the ranks pass, to a nanosecond, on all of them. Called by all ranks.
double slowest(double seconds, comm::Communicator& clock);

/// Called by all ranks. `versus` may be null. `clock` is a group of all ranks that is used for nothing else.
Measured measure(const PerfOptions& options, Operation& operation, comm::Communicator& group,
                 comm::Communicator* versus, comm::Communicator& clock);

}  // namespace sixfold::collective_perf
