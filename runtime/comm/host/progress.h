// ProgressEngine: drives all outstanding operations of one rank. There is no progress thread: whoever waits, or polls
// between pieces of compute, moves everything of its rank, so a wait in one group cannot block another.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/host/failure.h"
#include "runtime/comm/host/work.h"

namespace sixfold::comm {

/// Something that has operations to move: the groups of a rank.
class Progressable {
 public:
  virtual ~Progressable() = default;
  /// Moves what can move without blocking; true when anything did.
  virtual bool poll() = 0;
  /// An operation that is not done, for accounting; nullptr when idle.
  virtual WorkState* outstanding() = 0;
};

/// How a rank waits when nothing moves. With a core for each rank it spins; with more ranks than cores it yields at
/// once, because the peer it waits for may need this very core.
struct WaitPolicy {
  bool oversubscribed = false;
  double timeout_s = 120;
};

class ProgressEngine {
 public:
  /// Both outlive it.
  ProgressEngine(Failure& failure, CommTable& table, WaitPolicy policy);

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
  const WaitPolicy& policy() const { return policy_; }

 private:
  Failure& failure_;
  FlightRecorder& recorder_;
  CommTable& table_;
  WaitPolicy policy_;
  std::vector<Progressable*> groups_;
};

/// Backs off a little more each time it is called; reset() when something has moved.
class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : oversubscribed_(oversubscribed) {}
  void pause();
  void reset() { rounds_ = 0; }

 private:
  bool oversubscribed_;
  int rounds_ = 0;
};

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sixfold::comm
