// CommTable: what one rank communicated, summed by tag, primitive and algorithm; apart what belongs to steps of
// training and what does not, such as start-up and validation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/comm/host/rank_lock.h"
#include "runtime/comm/observe/clock.h"
#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// Where an operation belongs that is issued, and a moment that passes: in a step of training, or outside of them all.
enum class CommPhase : uint8_t { Outside, Step };
inline constexpr size_t kNumCommPhases = 2;

/// Sums over the calls of one (tag, primitive, algorithm) since the last reset.
struct CommRow {
  std::string tag;
  Primitive primitive = Primitive::AllReduce;
  Algorithm algorithm = Algorithm::Auto;
  std::string backend;  // "own", "mpi" or "nccl"
  int group_size = 1;
  int64_t calls = 0;
  uint64_t bytes = 0;               // size of the operation as nccl-tests counts it: the full buffer (see busbw_factor)
  uint64_t sent_bytes = 0;          // counted in the links of this rank; 0 where they are not (counts_links())
  uint64_t sent_inter_bytes = 0;    // of them: to other nodes; 0 where that is not known (knows_inter)
  double predicted_sent_bytes = 0;  // from the formulas of observe/predict.h
  double seconds = 0;               // start to end, operations that run side by side counted each
  double wait_seconds = 0;          // of these, until the last rank had entered the operation; see knows_waits
  /// In which this rank's thread was inside the communication layer for it: issue, poll, wait. A moment counts in one
  /// row only, whatever else is under way. Of operations that a stream follows, in which the stream stood still between
  /// what came before the wait and what came after it (observe/stream_stalls.h).
  double exposed_seconds = 0;
  double exposed_wait_seconds = 0;  // of these, for ranks that were late; see knows_waits
  bool knows_inter = true;          // of all its operations, what went to other nodes
  bool knows_waits = true;  // of all its operations, when the last rank had come: never of mpi's and nccl's, nor
                            // of those that a stream stood still for, of the others where
                            // WorldOptions::time_waits or a log asks for it
  uint32_t id = 0;          // of the table's rows, in the order in which they were made

  /// Whether sent_bytes and predicted_sent_bytes mean anything: MPI and NCCL do not tell what they send.
  bool counts_links() const { return backend == "own"; }
  void add(const CommRow& other);
};

/// A row as operations write it: the sums of each phase. Calls, bytes and seconds go where the operation was issued,
/// exposed time to where it passed.
struct PhasedRow {
  std::array<CommRow, kNumCommPhases> sums;
  CommRow& of(CommPhase phase) { return sums[static_cast<size_t>(phase)]; }
};

/// Written by the communicators of one rank, under its lock. Used by the rank's own thread.
class CommTable {
 public:
  /// `lock` outlives it.
  explicit CommTable(RankLock& lock) : lock_(lock) {}
  /// The row, made at first use; it stays where it is as long as the table lives. Under the lock.
  PhasedRow& row(const std::string& tag, Primitive primitive, Algorithm algorithm, const std::string& backend,
                 int group_size);
  /// Rows with calls or exposed time since the last reset, ordered by tag: of both phases together, or of one. Takes
  /// the lock, as all below but start() and end().
  std::vector<CommRow> rows() const;
  std::vector<CommRow> rows(CommPhase phase) const;
  /// All that were ever made, by id.
  std::vector<CommRow> all_rows() const;
  /// Time since the last reset in which at least one operation was under way, from its start to its end: those that run
  /// side by side count once. What of an operation goes on in a step is the step's.
  double busy_seconds() const;
  double busy_seconds(CommPhase phase) const;
  /// Sets all counts to zero.
  void reset();
  /// From now on, which is `now_s` (seconds_now()), it is this step of training, from 1; 0: none. By the rank's own
  /// thread, outside of calls that wait.
  void set_step(int64_t step, double now_s);
  int64_t step() const { return step_; }
  CommPhase phase() const { return step_ > 0 ? CommPhase::Step : CommPhase::Outside; }
  /// An operation starts, ends. Under the lock.
  void start(double now_s) {
    if (num_under_way_++ == 0) busy_since_s_ = now_s;
  }
  void end(double now_s) {
    if (--num_under_way_ == 0) count_busy(now_s);
  }

 private:
  void count_busy(double now_s) {
    busy_seconds_[static_cast<size_t>(phase())] += now_s - busy_since_s_;
    busy_since_s_ = now_s;
  }

  RankLock& lock_;
  std::map<std::tuple<std::string, Primitive, Algorithm, std::string, int>, PhasedRow> rows_;
  int64_t step_ = 0;
  size_t num_under_way_ = 0;
  double busy_since_s_ = 0;
  std::array<double, kNumCommPhases> busy_seconds_{};
};

/// What goes on in this scope belongs to a step of training; what is outside of all such scopes, to none.
class StepScope {
 public:
  StepScope(CommTable& table, int64_t step) : table_(table) { table_.set_step(step, seconds_now()); }
  ~StepScope() { table_.set_step(0, seconds_now()); }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  CommTable& table_;
};

/// As tables, logs and traces name it. None: messages have no algorithm, and MPI and NCCL do not tell theirs.
std::optional<std::string> recorded_algorithm(Algorithm algorithm);

/// Bytes of the operation's full buffer S: what algbw divides by time. `count` as in Call.
uint64_t operation_bytes(Primitive primitive, size_t count, int size, size_t element_bytes);
/// The same for blocks of different size, where call.counts says so; for AllToAll then what call.rank sends.
uint64_t operation_bytes(const Call& call, size_t element_bytes);

/// busbw = algbw * factor, as nccl-tests defines it (PERFORMANCE.md): AllReduce 2(N-1)/N; AllGather, ReduceScatter,
/// AllToAll (N-1)/N; Broadcast, Reduce 1.
double busbw_factor(Primitive primitive, int size);

}  // namespace sixfold::comm
