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
  double predicted_sent_bytes = 0;  // from the formulas of observe/predict.h
  double seconds = 0;               // start to end, operations that run side by side counted each
  /// In which this rank's thread was inside the communication layer for it: issue, poll, wait.
  double exposed_seconds = 0;
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
  /// Sets all counts to zero.
  void reset();

 private:
  RankLock& lock_;
  std::map<std::tuple<std::string, Primitive, Algorithm, std::string, int>, CommRow> rows_;
};

/// Bytes of the operation's full buffer S: what algbw divides by time. `count` as in Call.
uint64_t operation_bytes(Primitive primitive, size_t count, int size, size_t element_bytes);
/// The same for blocks of different size, where call.counts says so; for AllToAll then what call.rank sends.
uint64_t operation_bytes(const Call& call, size_t element_bytes);

/// busbw = algbw * factor, as nccl-tests defines it (PERFORMANCE.md): AllReduce 2(N-1)/N; AllGather, ReduceScatter,
/// AllToAll (N-1)/N; Broadcast, Reduce 1.
double busbw_factor(Primitive primitive, int size);

}  // namespace sixfold::comm
