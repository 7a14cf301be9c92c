// --explain: what would run, step by step, and what it would cost. Nothing is run.
#pragma once

#include "examples/collective_perf/options.h"
#include "runtime/comm/schedule/cost.h"

namespace sixfold::collective_perf {

void explain(const PerfOptions& options);

/// What the cost model says of one operation on the links that options name (emulated, --profile, or "host"). `count`
/// as in comm::Call.
comm::CostReport predict(const PerfOptions& options, const comm::Topology& topology, comm::Algorithm algorithm,
                         size_t count);

/// --tune: measures every algorithm of options.op that applies at every size, and writes the quickest of each into the
/// rows of options.tune for groups such as the World's; other rows of the file stay. Called by all ranks.
void tune(const PerfOptions& options, comm::World& world);

}  // namespace sixfold::collective_perf
