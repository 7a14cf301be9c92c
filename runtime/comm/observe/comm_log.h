// CommLog: every operation of one rank, when its compute stood still for them, and what it computed meanwhile. Off
// unless WorldOptions::comm_log_bytes asks for it; then it records into memory that is bounded, and costs a few stores
// and no system call. gather_records() (observe/records.h) brings the logs of all ranks together.
//
// Terms. An operation is *enqueued* by the call that issues it, *started* when it may move (those before it in its
// group or lane have ended), and *ended* when its buffers are free on this rank. Its *wait* is the time from its start
// until the last of the ranks that it needs had entered it, so a rank that is late makes the others wait and leaves
// their transfer, the rest, as it was. *Exposed* is the time in which this rank's compute stood still: its thread was
// inside the communication layer, in a call that issues, polls or waits. Each moment counts once, whatever is under
// way, for the operation that the call is about. Where the stream of a GPU follows the operation, it is the time in
// which that stood still (stream_stalls.h): a sum, without intervals.
//
// So exposed time is not a part of start to end. It begins before the start where a call issues, or waits for, an
// operation that is queued: then it has in it what those in front take, and its exposed_wait the ranks late for those,
// which may be more than the operation's own wait. It goes on after the end until the call returns, which moves other
// operations of the rank, too.
//
// Times are seconds of the host's steady clock (seconds_now()).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/observe/clock.h"
#include "runtime/comm/observe/comm_table.h"
#include "runtime/core/chunked_buffer.h"
#include "runtime/core/dtype.h"

namespace sixfold::comm {

/// One collective, send or receive of one rank. A barrier is an all-reduce with the tag "barrier".
struct LoggedOperation {
  double enqueued_s = 0, started_s = 0, ended_s = 0;  // 0: not yet
  double wait_s = -1;    // within start to end; < 0: not known (mpi, nccl, GPUs by way of the host), not ended
  double exposed_s = 0;  // sum over its exposed intervals, the shortest ones included (kShortestInterval); where a
                         // GPU's stream stood still, of which there are no intervals
  double exposed_wait_s =
      0;                  // the part of it that was spent waiting for late ranks; known as wait_s is; < 0: not known
  uint64_t sequence = 0;  // among the collectives of the group, or the messages of sender, receiver and lane: the
                          // two ends of a message have the same group, lane and sequence
  uint64_t count = 0;     // elements, as in Call
  uint64_t bytes = 0;     // operation_bytes(): the full buffer
  int64_t sent_intra_bytes = -1, sent_inter_bytes = -1;  // counted in the links, by class; < 0: not known
  int32_t step = 0;                                      // of training, from 1; 0: outside (CommTable::set_step)
  uint32_t group = 0;                                    // place in RankRecords::groups
  uint32_t row = 0;                                      // place in RankRecords::rows
  int32_t peer = -1;                                     // rank of the group; point-to-point only, as the lane
  int16_t lane = -1;
  DType dtype = DType::F32;
};

/// A stretch of time in which the rank's compute stood still. Those of one rank do not overlap.
struct ExposedInterval {
  double start_s = 0, end_s = 0;
  double wait_s = 0;       // of it: for ranks that were late
  uint64_t operation = 0;  // place in RankRecords::operations: what it waited for, or which one was issued or polled
};
/// Shorter ones, such as polls that find nothing, are only counted in the operation's exposed_s.
inline constexpr double kShortestInterval = 5e-6;

/// A piece of compute of one rank. Those of an action (a stage's forward or backward of one micro-batch) are within it.
struct ComputeSpan {
  enum class Kind : uint8_t { Forward, Backward, Optimizer };
  double start_s = 0, end_s = 0;
  int32_t step = 0;
  int32_t micro_batch = -1;  // -1: none
  int32_t unit = -1;         // place in RankRecords::units; -1: the whole action, or all units
  Kind kind = Kind::Forward;
};

/// What operations have in common: as in CommRow.
struct LoggedRow {
  std::string tag;
  Primitive primitive = Primitive::AllReduce;
  Algorithm algorithm = Algorithm::Auto;
  std::string backend;
  int group_size = 1;
};
struct LoggedGroup {
  std::string name;
  std::vector<int> members;  // ranks of the World, in the group's order
};

/// All that one rank has recorded.
struct RankRecords {
  int rank = 0;
  double clock_offset_s = 0;  // what has been added to this rank's times, to make them rank 0's
  std::vector<LoggedGroup> groups;
  std::vector<LoggedRow> rows;
  std::vector<std::string> units;
  std::vector<LoggedOperation> operations;  // in the order of issue
  std::vector<ExposedInterval> exposed;     // in order of time
  std::vector<ComputeSpan> spans;           // in the order in which they ended
  uint64_t num_dropped = 0;                 // records that memory did not suffice for
};

/// Written by the communicators of one rank, under its lock, and by its own thread.
class CommLog {
 public:
  static constexpr uint64_t kNotLogged = ~uint64_t{0};

  /// Keeps up to about `max_bytes` bytes of records; later ones are dropped and counted. `table`, whose rows records
  /// refer to and which says what step it is, and `lock` outlive it.
  CommLog(size_t max_bytes, const CommTable& table, RankLock& lock);

  // Under the lock.

  uint32_t add_group(const std::string& name, const std::vector<int>& members);
  /// Returns its number, or kNotLogged.
  uint64_t issue(const LoggedOperation& operation);
  /// nullptr where it is not kept.
  LoggedOperation* find(uint64_t number);
  /// `operation` as issue() returned it.
  void expose(uint64_t operation, double start_s, double end_s, double wait_s);

  // By the rank's own thread, which does not hold the lock.

  /// For spans: a number for the unit's name.
  int32_t unit(const std::string& name);
  void span(ComputeSpan::Kind kind, int32_t unit, int micro_batch, double start_s, double end_s);
  /// Forgets all records; groups and units stay.
  void clear();
  /// Records nothing any more.
  void stop();
  RankRecords records(int rank) const;

 private:
  const CommTable& table_;
  RankLock& lock_;
  bool stopped_ = false;
  uint64_t first_number_ = 0;  // of the first operation that is kept
  uint64_t num_dropped_ = 0;
  std::vector<LoggedGroup> groups_;
  std::vector<std::string> units_;
  ChunkedBuffer<LoggedOperation> operations_;
  ChunkedBuffer<ExposedInterval> exposed_;
  ChunkedBuffer<ComputeSpan> spans_;
};

/// The span of a scope. Does nothing without a log.
class SpanScope {
 public:
  SpanScope(CommLog* log, ComputeSpan::Kind kind, int32_t unit, int micro_batch)
      : log_(log), kind_(kind), unit_(unit), micro_batch_(micro_batch), start_s_(log == nullptr ? 0 : seconds_now()) {}
  ~SpanScope() {
    if (log_ != nullptr) log_->span(kind_, unit_, micro_batch_, start_s_, seconds_now());
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  CommLog* log_;
  ComputeSpan::Kind kind_;
  int32_t unit_;
  int micro_batch_;
  double start_s_;
};

}  // namespace sixfold::comm
