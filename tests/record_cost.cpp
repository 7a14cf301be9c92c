// record_cost [OPERATIONS POLLS STEP_MS]: what recording takes, in loops of nothing else.
//
// An operation is what a collective tells OperationWatch from its issue to the end of the wait for it, a poll what a
// look between layers tells it; both with the readings of the clock that they need. Each number is the median of many
// loops. With the log, a loop writes to memory that nobody has touched before, as a run does. With OPERATIONS and POLLS
// of a step and the time that a step takes, it says what share of the step the log adds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/observe/operation_watch.h"

namespace sixfold::comm {
namespace {

constexpr int kLoops = 101;
constexpr int kOperations = 10000;  // of a loop

/// A rank without links. What the recorder keeps is there in any case, log or not.
struct Rig {
  explicit Rig(bool logs) {
    if (logs) log.emplace(size_t{64} << 20, table, lock);
    watch.emplace(recorder, table, logs ? &*log : nullptr, true);
    group = watch->add_group("world", {0, 1});
  }

  FlightRecorder recorder{SharedRegion::anonymous(FlightRecorder::region_bytes(1)), 0, {0}};
  RankLock lock;
  CommTable table{lock};
  std::optional<CommLog> log;
  std::optional<OperationWatch> watch;
  WatchedGroup group;
  RecordedName tag{"dp.grads"};
  PhasedRow& row = table.row("dp.grads", Primitive::AllReduce, Algorithm::Ring, "own", 2);
  uint64_t sequence = 0;

  WatchedOperation issue() {
    const double now = seconds_now();
    OperationWatch::Standstill still(*watch, now);
    WatchedOperation operation = watch->issue(row, {group, tag, {}, sequence++, -1, -1, 100, 50}, now);
    watch->start(operation, seconds_now());
    still.count(operation, seconds_now());
    return operation;
  }
  void wait(const WatchedOperation& operation) {
    const double now = seconds_now();
    OperationWatch::Standstill still(*watch, now);
    watch->finish(operation, seconds_now(), kNothingSent, now, true);
    still.count(operation, seconds_now());
  }
  void poll(const WatchedOperation& operation) {
    OperationWatch::Standstill still(*watch, seconds_now());
    still.count(operation, seconds_now());
  }
};

/// Nanoseconds of one `step`, which is called with a Rig and an operation that is under way there.
template <typename Step>
double median_ns(bool logs, const Step& step) {
  std::vector<double> ns;
  for (int i = 0; i < kLoops; ++i) {
    Rig rig(logs);
    const WatchedOperation under_way = rig.issue();
    const double start = seconds_now();
    for (int k = 0; k < kOperations; ++k) step(rig, under_way);
    ns.push_back((seconds_now() - start) / kOperations * 1e9);
  }
  std::nth_element(ns.begin(), ns.begin() + kLoops / 2, ns.end());
  return ns[kLoops / 2];
}

}  // namespace
}  // namespace sixfold::comm

int main(int argc, char** argv) {
  using namespace sixfold::comm;
  const auto operation = [](Rig& rig, const WatchedOperation&) { rig.wait(rig.issue()); };
  const auto poll = [](Rig& rig, const WatchedOperation& under_way) { rig.poll(under_way); };
  const double operation_off = median_ns(false, operation), operation_on = median_ns(true, operation);
  const double poll_off = median_ns(false, poll), poll_on = median_ns(true, poll);
  std::printf("ns             without  with --comm-log or --trace\n");
  std::printf("an operation   %7.1f  %7.1f\n", operation_off, operation_on);
  std::printf("a poll         %7.1f  %7.1f\n", poll_off, poll_on);
  if (argc != 4) return 0;
  const double operations = std::atof(argv[1]), polls = std::atof(argv[2]), step_ns = std::atof(argv[3]) * 1e6;
  const double off = operations * operation_off + polls * poll_off, on = operations * operation_on + polls * poll_on;
  std::printf("a step of %s ms with %s operations and %s polls: %.4f%% without, %.4f%% with\n", argv[3], argv[1],
              argv[2], 100 * off / step_ns, 100 * on / step_ns);
  return 0;
}
