// RankLock: what a rank's own thread and its progress thread (progress_thread.h) take turns with. It guards all that
// moves operations: the engine, the groups, their links and plans, the table of communication, calls to MPI. Where
// there is no progress thread it is a branch.
//
// The rank has the right of way: it says that it wants the lock before it takes it, and the thread then keeps off.
#pragma once

#include <atomic>
#include <mutex>

#include "runtime/comm/host/doorbell.h"

namespace sixfold::comm {

class RankLock {
 public:
  /// By the rank's own thread, which does not hold it: whether there is a progress thread from now on.
  void share(bool shared) { is_shared_ = shared; }
  bool is_shared() const { return is_shared_; }

  /// Both by the rank's own thread, for std::lock_guard. Not recursive.
  void lock() {
    if (!is_shared_) return;
    is_wanted_.store(true, std::memory_order_relaxed);
    mutex_.lock();
  }
  /// Wakes the progress thread where it is parked: there may be something to do now.
  void unlock() {
    if (!is_shared_) return;
    is_wanted_.store(false, std::memory_order_relaxed);
    mutex_.unlock();
    parked_.ring();
  }
  /// In a forked child, whose only thread was the rank's own and held the lock: ends both.
  void unlock_in_child() {
    mutex_.unlock();
    is_shared_ = false;
  }

  /// By the progress thread, which gives it back when true.
  bool try_take() { return !is_wanted_.load(std::memory_order_relaxed) && mutex_.try_lock(); }
  void give_back() { mutex_.unlock(); }
  /// By the progress thread: sleeps until the rank unlocks, unless `may_sleep`, called under the lock, says otherwise.
  /// Does not miss what the rank did before: either that is seen under the lock, or the rank sees the sleeper.
  template <typename MaySleep>
  void park(MaySleep&& may_sleep) {
    parked_.prepare();
    const bool sleeps = [&] {
      const std::lock_guard guard(mutex_);
      return may_sleep();
    }();
    if (sleeps) {
      parked_.sleep(std::nullopt);
    } else {
      parked_.cancel();
    }
  }

 private:
  bool is_shared_ = false;
  alignas(64) std::atomic<bool> is_wanted_{false};
  std::mutex mutex_;
  Doorbell parked_{};
};

}  // namespace sixfold::comm
