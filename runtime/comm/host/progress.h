// ProgressEngine: drives all outstanding operations of one rank. There is no progress thread: whoever waits, or polls
// between pieces of compute, moves everything of its rank, so a wait in one group cannot block another.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/host/doorbell.h"
#include "runtime/comm/host/failure.h"
#include "runtime/comm/host/work.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

/// Something that has operations to move: the groups of a rank.
class Progressable {
 public:
  virtual ~Progressable() = default;
  /// Moves what can move without blocking; true when anything did.
  virtual bool poll() = 0;
  /// An operation that is not done, for accounting; nullptr when idle.
  virtual WorkState* outstanding() = 0;
  /// Whether the rank's doorbell rings whenever something can move.
  virtual bool wakes() const = 0;
};

/// How a rank waits when nothing moves: it spins, then yields, then sleeps until its doorbell rings. With more ranks
/// than cores it yields at once, because the peer it waits for may need this very core.
struct WaitPolicy {
  bool oversubscribed = false;
  double timeout_s = 120;
};

class ProgressEngine {
 public:
  /// All outlive it. `doorbell`: this rank's.
  ProgressEngine(Failure& failure, CommTable& table, Doorbell& doorbell, WaitPolicy policy);

  void add(Progressable& group) { groups_.push_back(&group); }
  void remove(Progressable& group);

  /// Moves everything once; true when anything moved. Throws CommError when another rank has aborted.
  bool poll();
  /// poll(), its time counted as exposed communication of an outstanding operation; nothing when idle.
  void poll_exposed();
  /// Until `work` is done. Throws CommError on abort, when a rank that it needs has left or is gone, or when nothing
  /// has moved for timeout_s, not counting the time that another rank spends in a section (World::Section).
  void wait(WorkState& work);

  /// Tells all ranks, then throws CommError on this one.
  [[noreturn]] void fail(const std::string& reason) { Patience::fail(failure_, reason); }
  /// Throws the CommError that says who aborted and why, where somebody has.
  void check_abort() { failure_.check(); }

  int world_rank() const { return recorder_.rank(); }
  AbortState& abort() { return failure_.abort(); }
  FlightRecorder& recorder() { return recorder_; }
  CommTable& table() { return table_; }
  WaitCounts wait_counts() const { return counts_; }

 private:
  std::chrono::microseconds longest_sleep() const;

  Failure& failure_;
  FlightRecorder& recorder_;
  CommTable& table_;
  Doorbell& doorbell_;
  WaitPolicy policy_;
  WaitCounts counts_;
  std::vector<Progressable*> groups_;
};

/// Backs off a little more each time it is called, until it is time to sleep; reset() when something has moved.
class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : oversubscribed_(oversubscribed) {}
  /// Not once it is time to sleep.
  void pause();
  bool is_time_to_sleep() const { return rounds_ >= kRounds; }
  void reset() { rounds_ = 0; }

 private:
  static constexpr int kRounds = 500;

  bool oversubscribed_;
  int rounds_ = 0;
};

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sixfold::comm
