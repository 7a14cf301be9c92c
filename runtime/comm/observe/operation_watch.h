// OperationWatch: the one place that groups tell what becomes of their operations. It passes it on to the flight
// recorder, the communication table and, where there is one, the log, and sees to it that no moment in which the rank's
// compute stood still is counted twice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/observe/comm_log.h"
#include "runtime/comm/observe/flight_recorder.h"
#include "runtime/comm/observe/intervals.h"
#include "runtime/comm/schedule/topology.h"

namespace sixfold::comm {

/// A group as reports name it.
struct WatchedGroup {
  RecordedName name;
  uint32_t logged = 0;
};

/// An operation of this rank, from its issue to its end.
struct WatchedOperation {
  PhasedRow* row = nullptr;
  CommPhase phase = CommPhase::Outside;   // when it was issued
  uint64_t record = 0;                    // in the flight recorder
  uint64_t logged = CommLog::kNotLogged;  // in the log
  double started_s = 0;                   // 0: not yet
  bool is_part = false;                   // of another, for which the rest stands: only what it sends is counted
  bool in_stream = false;                 // of a GPU: StreamStalls counts for how long that stands still
};

/// What a group issues.
struct IssuedOperation {
  const WatchedGroup& group;
  const RecordedName& tag;
  Signature signature;  // Send and Recv for point-to-point
  uint64_t sequence;    // as LoggedOperation
  int peer, lane;       // of the group; point-to-point only, else -1
  uint64_t bytes;       // operation_bytes()
  double predicted_sent_bytes;
};

/// Bytes that an operation has sent, as links counted them; < 0: not known.
struct SentBytes {
  int64_t total = -1, inter = -1;  // inter: of them, to other nodes

  void add(uint64_t bytes, LinkClass link_class) {
    total += static_cast<int64_t>(bytes);
    if (link_class == LinkClass::Inter) inter += static_cast<int64_t>(bytes);
  }
};
inline constexpr SentBytes kNothingSent{0, 0};

/// One per rank; everything is called under its lock. Times are seconds_now().
class OperationWatch {
 public:
  /// All outlive it. `log` may be nullptr.
  OperationWatch(FlightRecorder& recorder, CommTable& table, CommLog* log, bool times_waits)
      : recorder_(recorder), table_(table), log_(log), times_waits_(times_waits || log != nullptr) {
    late_.reserve(64);
  }

  /// Whether finish() wants to know when all ranks had come.
  bool times_waits() const { return times_waits_; }
  CommTable& table() { return table_; }

  /// `members`: ranks of the World.
  WatchedGroup add_group(const std::string& name, const std::vector<int>& members);
  WatchedOperation issue(PhasedRow& row, const IssuedOperation& operation, double now_s);
  /// A part of `whole` that is counted in `row`.
  WatchedOperation part_of(const WatchedOperation& whole, PhasedRow& row, double predicted_sent_bytes);
  void start(WatchedOperation& operation, double now_s);
  /// there_s: when the last rank that it needed had come, 0 where that is not known. is_awaited: the rank stands still
  /// until this operation, or one behind it, is done.
  void finish(const WatchedOperation& operation, double now_s, const SentBytes& sent, double there_s, bool is_awaited);

  /// The operation's stream stood still for it, in that phase. Late ranks are not told from data on the way then.
  void expose_stream(const WatchedOperation& operation, CommPhase phase, double seconds);

  /// The rank's compute stands still, from `start_s` until count(). Within another one it counts nothing: the outer one
  /// does. By the rank's own thread.
  class Standstill {
   public:
    Standstill(OperationWatch& watch, double start_s) : watch_(watch), is_outer_(watch.still_since_s_ == 0) {
      if (!is_outer_) return;
      watch_.still_since_s_ = start_s;
      watch_.late_.clear();
    }
    ~Standstill() {
      if (is_outer_) watch_.still_since_s_ = 0;
    }
    Standstill(const Standstill&) = delete;
    Standstill& operator=(const Standstill&) = delete;
    /// Charges it to `operation`, unless that is in a stream.
    void count(const WatchedOperation& operation, double now_s) {
      if (is_outer_) watch_.expose(operation, now_s);
    }

   private:
    OperationWatch& watch_;
    bool is_outer_;
  };

 private:
  void add_sent(const WatchedOperation& operation, const SentBytes& sent);
  void expose(const WatchedOperation& operation, double now_s);

  FlightRecorder& recorder_;
  CommTable& table_;
  CommLog* log_;
  bool times_waits_;
  double still_since_s_ = 0;    // 0: the rank computes
  std::vector<Interval> late_;  // since then: when ranks that it stands still for had not come
};

}  // namespace sixfold::comm
