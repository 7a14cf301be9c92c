#include "examples/collective_perf/measure.h"

#include <algorithm>

#include "runtime/comm/host/progress.h"

namespace sixfold::collective_perf {

namespace {

constexpr double kRoundsSeconds = 2;  // what the rounds of one size may take, where 3 do
constexpr int kFewestRounds = 3;

/// Seconds of one cycle on the slowest rank, over `iters` cycles; without a group the cycle has no operation in it.
double time_cycles(Operation& operation, bool fresh, comm::Communicator* group, comm::Communicator& clock, int iters) {
  clock.barrier();
  const double start = comm::seconds_now();
  for (int i = 0; i < iters; ++i) {
    if (fresh) operation.write();
    if (group != nullptr) operation.run(*group);
    if (fresh) operation.read();
  }
  return slowest(comm::seconds_now() - start, clock) / iters;
}

int64_t count_wrong(const Operation& operation, comm::Communicator& group, comm::Communicator& clock) {
  int64_t num_wrong = operation.check(group);
  const comm::Buf sum(&num_wrong, 1, DType::I64);
  clock.all_reduce(sum, sum, ReduceOp::Sum).wait();
  return num_wrong;
}

}  // namespace

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double slowest(double seconds, comm::Communicator& clock) {
  auto nanoseconds = static_cast<int64_t>(seconds * 1e9);
  const comm::Buf most(&nanoseconds, 1, DType::I64);
  clock.all_reduce(most, most, ReduceOp::Max).wait();
  return static_cast<double>(nanoseconds) * 1e-9;
}

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
  const double versus_once = versus == nullptr ? 0 : time_cycles(operation, options.fresh, versus, clock, 1);
  const double round_seconds = iters * ((options.fresh ? 2 : 1) * once + versus_once);
  measured.num_rounds = std::min(
      options.rounds, std::max(kFewestRounds, static_cast<int>(std::min(kRoundsSeconds / round_seconds, 1e6))));
  std::vector<double> own, other, ratios;
  for (int round = 0; round < measured.num_rounds; ++round) {
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
