// CommTable: what one rank communicated, summed by tag, primitive and algorithm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/comm/host/rank_lock.h"
#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// Sums over the calls of one (tag, primitive, algorithm) since the last reset.
struct CommRow {
  std::string tag;
  Primitive primitive = Primitive::AllReduce;
  Algorithm algorithm = Algorithm::Auto;
  std::string backend;  // "own", "mpi" or "nccl"
  int group_size = 1;
  int64_t calls = 0;
  uint64_t bytes = 0;               // size of the operation as nccl-tests counts it: the full buffer (see busbw_factor)
  uint64_t sent_bytes = 0;          // counted in the links of this rank; 0 for mpi and nccl, which cannot tell
  uint64_t sent_inter_bytes = 0;    // of them: to other nodes
  double predicted_sent_bytes = 0;  // from the formulas of observe/predict.h
  double seconds = 0;               // start to end, operations that run side by side counted each
  /// Of these, until the last rank had entered the operation. Only with WorldOptions::time_waits, and where it is known
  /// (own).
  double wait_seconds = 0;
  /// In which this rank's thread was inside the communication layer for it: issue, poll, wait. A moment counts in one
  /// row only, whatever else is under way.
  double exposed_seconds = 0;
  double exposed_wait_seconds = 0;  // of these, for ranks that were late; known as wait_seconds is
  uint32_t id = 0;                  // of the table's rows, in the order in which they were made
};

/// Written by the communicators of one rank, under its lock. Used by the rank's own thread.
class CommTable {
 public:
  /// `lock` outlives it.
  explicit CommTable(RankLock& lock) : lock_(lock) {}
  /// The row, made at first use; it stays where it is as long as the table lives. Under the lock.
  CommRow& row(const std::string& tag, Primitive primitive, Algorithm algorithm, const std::string& backend,
               int group_size);
  /// Rows with calls since the last reset, ordered by tag. Takes the lock, as reset() does.
  std::vector<CommRow> rows() const;
  /// All that were ever made, by id.
  std::vector<CommRow> all_rows() const;
  /// Time since the last reset in which at least one operation was under way, from its start to its end: those that run
  /// side by side count once.
  double busy_seconds() const;
  /// Sets all counts to zero.
  void reset();
  /// An operation starts, ends. Under the lock.
  void start(double now_s) {
    if (num_under_way_++ == 0) busy_since_s_ = now_s;
  }
  void end(double now_s) {
    if (--num_under_way_ == 0) busy_seconds_ += now_s - busy_since_s_;
  }

 private:
  RankLock& lock_;
  std::map<std::tuple<std::string, Primitive, Algorithm, std::string, int>, CommRow> rows_;
  size_t num_under_way_ = 0;
  double busy_since_s_ = 0, busy_seconds_ = 0;
};

/// Bytes of the operation's full buffer S: what algbw divides by time. `count` as in Call.
uint64_t operation_bytes(Primitive primitive, size_t count, int size, size_t element_bytes);
/// The same for blocks of different size, where call.counts says so; for AllToAll then what call.rank sends.
uint64_t operation_bytes(const Call& call, size_t element_bytes);

/// busbw = algbw * factor, as nccl-tests defines it (PERFORMANCE.md): AllReduce 2(N-1)/N; AllGather, ReduceScatter,
/// AllToAll (N-1)/N; Broadcast, Reduce 1.
double busbw_factor(Primitive primitive, int size);

}  // namespace sixfold::comm
