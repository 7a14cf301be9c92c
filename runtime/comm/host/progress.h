// ProgressEngine: drives all outstanding operations of one rank. Whoever waits, or polls between pieces of compute,
// moves everything of its rank, so a wait in one group cannot block another. Where there is a core for it, a thread
// does the same while the rank computes (progress_thread.h); whoever touches the engine or its groups holds lock()
// then.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/host/doorbell.h"
#include "runtime/comm/host/failure.h"
#include "runtime/comm/host/rank_lock.h"
#include "runtime/comm/host/work.h"
#include "runtime/comm/observe/clock.h"
#include "runtime/comm/observe/stream_stalls.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

/// Something that has operations to move: the groups of a rank. All are called under the engine's lock.
class Progressable {
 public:
  virtual ~Progressable() = default;
  /// Moves what can move without blocking; true when anything did.
  virtual bool poll() = 0;
  /// An operation that is not done; nullptr when idle.
  virtual std::shared_ptr<WorkState> outstanding() = 0;
  /// Whether the rank's doorbell rings whenever something can move.
  virtual bool wakes() const = 0;
  /// The World has failed, and buffers are about to go away with their owners: returns when no device touches them any
  /// more. No poll() follows.
  virtual void abandon() noexcept {}
};

/// How a rank waits when nothing moves: it spins, then yields, then sleeps until its doorbell rings. With more ranks
/// than cores it yields at once, because the peer it waits for may need this very core.
struct WaitPolicy {
  bool oversubscribed = false;
  double timeout_s = 120;
};

/// One turn of a spin.
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Backs off a little more each time it is called, until it is time to sleep; reset() when something has moved.
class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : oversubscribed_(oversubscribed) {}
  /// Not once it is time to sleep.
  void pause();
  bool is_time_to_sleep() const { return is_time_to_sleep_; }
  void reset() {
    rounds_ = 0;
    yields_since_s_ = 0;
    is_time_to_sleep_ = false;
  }

 private:
  bool oversubscribed_;
  int rounds_ = 0;
  double yields_since_s_ = 0;  // 0: it spins
  bool is_time_to_sleep_ = false;
};

class ProgressEngine {
 public:
  /// All outlive it. `doorbell`: this rank's.
  ProgressEngine(Failure& failure, OperationWatch& watch, RankLock& lock, Doorbell& doorbell, WaitPolicy policy);

  /// Guards the engine, its groups and all that they use. The rank holds it in every call that starts, moves, waits for
  /// or ends something; what is said to be called under it is not to take it again.
  RankLock& lock() { return lock_; }

  // By the rank's own thread.

  /// Drives everything once, the time counted as exposed communication of an outstanding operation; nothing when idle.
  /// Throws as wait().
  void poll_exposed();
  /// The same where no thread drives; with one, does nothing but throw what has failed meanwhile.
  void progress();
  /// Until `work` is done. Throws CommError on abort, when a rank that it needs has left or is gone, or when nothing
  /// has moved for timeout_s, not counting the time that another rank spends in a section (World::Section).
  void wait(WorkState& work);
  /// The same; then the work's stream follows it, for which it may stand still (StreamStalls).
  void wait_and_join(WorkState& work);
  /// From now on streams are timed by `clock`, which outlives the engine.
  void time_streams(StreamClock& clock) { stalls_.emplace(clock, watch_); }
  /// Adds to exposed times what streams have stood still so far.
  void count_stalls();
  /// Ends a group: drives what is outstanding to its end where `drives` (unless the World has failed), and forgets it.
  /// Logs what fails. `name`: for the log.
  void close(Progressable& group, const std::string& name, bool drives);
  /// Any thread.
  WaitCounts wait_counts() const { return {num_sleeps_, num_woken_}; }

  // Under the lock.

  void add(Progressable& group) { groups_.push_back(&group); }
  /// Until `group` has nothing outstanding. Throws as wait().
  void finish(Progressable& group);
  /// Tells all ranks, then throws CommError on this one.
  [[noreturn]] void fail(const std::string& reason);
  /// Throws the CommError that says who aborted and why, where somebody has; what the progress thread has thrown, where
  /// it has.
  void check_abort();
  bool has_outstanding() const;
  /// How long a rank may sleep beside its doorbell.
  std::chrono::microseconds longest_sleep() const;

  /// For the progress thread, under the lock: nothing to do; nothing has moved; something has; an exception is kept for
  /// the rank, and nothing is to be driven any more.
  enum class Driven : uint8_t { Nothing, Still, Moved, Failed };
  Driven drive_in_background() noexcept;

  int world_rank() const { return recorder_.rank(); }
  AbortState& abort() { return failure_.abort(); }
  FlightRecorder& recorder() { return recorder_; }
  CommTable& table() { return watch_.table(); }
  OperationWatch& watch() { return watch_; }
  /// What the rank stands still for, in wait() or finish(); nullptr where it does not.
  const WorkState* awaited() const { return awaited_; }
  Doorbell& doorbell() { return doorbell_; }
  Backoff new_backoff() const { return Backoff(policy_.oversubscribed); }

 private:
  bool poll();
  /// Called before an exception leaves the engine.
  void abandon() noexcept;
  void drive_to_end(WorkState& work, double start_s);
  void drive_until_done(WorkState& work, double start_s);

  Failure& failure_;
  FlightRecorder& recorder_;
  OperationWatch& watch_;
  RankLock& lock_;
  Doorbell& doorbell_;
  WaitPolicy policy_;
  std::atomic<uint64_t> num_sleeps_{0}, num_woken_{0};
  std::vector<Progressable*> groups_;
  // After an exception, buffers of operations may go away with their owners: the thread must not move them.
  std::atomic<bool> has_failed_{false};
  std::exception_ptr background_error_;
  uint64_t num_drives_ = 0;
  const WorkState* awaited_ = nullptr;
  std::optional<StreamStalls> stalls_;  // where streams are timed
};

}  // namespace sixfold::comm
