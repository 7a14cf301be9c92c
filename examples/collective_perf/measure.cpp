#include "examples/collective_perf/measure.h"

#include <algorithm>
#include <vector>

#include "runtime/comm/host/progress.h"

namespace sixfold::collective_perf {

namespace {

/// Seconds of one cycle on the slowest rank, over `iters` cycles; without a group the cycle has no operation in it.
double time_cycles(Operation& operation, bool fresh, comm::Communicator* group, comm::Communicator& clock, int iters) {
  clock.barrier();
  const double start = comm::seconds_now();
  for (int i = 0; i < iters; ++i) {
    if (fresh) operation.write();
    if (group != nullptr) operation.run(*group);
    if (fresh) operation.read();
  }
  auto nanoseconds = static_cast<int64_t>((comm::seconds_now() - start) * 1e9);
  const comm::Buf slowest(&nanoseconds, 1, DType::I64);
  clock.all_reduce(slowest, slowest, ReduceOp::Max).wait();
  return static_cast<double>(nanoseconds) * 1e-9 / iters;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

int64_t count_wrong(const Operation& operation, comm::Communicator& group, comm::Communicator& clock) {
  int64_t num_wrong = operation.check(group);
  const comm::Buf sum(&num_wrong, 1, DType::I64);
  clock.all_reduce(sum, sum, ReduceOp::Sum).wait();
  return num_wrong;
}

}  // namespace

Measured measure(const PerfOptions& options, Operation& operation, comm::Communicator& group,
                 comm::Communicator* versus, comm::Communicator& clock) {
  Measured measured;
  if (options.check) measured.num_wrong = count_wrong(operation, group, clock);
  for (int i = 0; i < options.warmup; ++i) {
    time_cycles(operation, options.fresh, &group, clock, 1);
    if (versus != nullptr) time_cycles(operation, options.fresh, versus, clock, 1);
  }
  // Enough cycles a round for the clock and the barrier before it not to matter.
  const double once = time_cycles(operation, options.fresh, &group, clock, 1);
  const int iters = options.iters > 0 ? options.iters : static_cast<int>(std::clamp(0.004 / once, 1.0, 2000.0));
  std::vector<double> own, other, ratios;
  for (int round = 0; round < options.rounds; ++round) {
    const double idle = options.fresh ? time_cycles(operation, true, nullptr, clock, iters) : 0;
    own.push_back(time_cycles(operation, options.fresh, &group, clock, iters) - idle);
    if (versus == nullptr) continue;
    other.push_back(time_cycles(operation, options.fresh, versus, clock, iters) - idle);
    ratios.push_back(other.back() / own.back());
  }
  measured.seconds = median(own);
  if (versus != nullptr) {
    measured.versus_seconds = median(other);
    measured.ratio = median(ratios);
  }
  return measured;
}

}  // namespace sixfold::collective_perf
