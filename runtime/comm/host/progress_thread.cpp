#include "runtime/comm/host/progress_thread.h"

#include <pthread.h>
#include <signal.h>

#include "runtime/core/error.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

namespace {

constexpr int kBusyRests = 256;  // after it has driven: longer than it takes the rank to issue an operation
constexpr std::chrono::microseconds kNap{100};
constexpr int kNaps = 200;  // some 20 to 30 ms

// A child has no thread but the one that forked, and a lock that another thread held would never be free there. So a
// rank forks while its progress thread is outside of the lock. Handlers of fork have no arguments: they find the lock
// by the thread that forks.
thread_local RankLock* lock_of_this_rank = nullptr;

void before_fork() {
  if (lock_of_this_rank != nullptr) lock_of_this_rank->lock();
}
void after_fork_in_parent() {
  if (lock_of_this_rank != nullptr) lock_of_this_rank->unlock();
}
void after_fork_in_child() {
  if (lock_of_this_rank != nullptr) lock_of_this_rank->unlock_in_child();
}

void register_fork_handlers() {
  static const int result = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  SIXFOLD_CHECK_EQ(result, 0, "pthread_atfork");
}

/// Starts with all signals blocked, which are the other threads' matter.
template <typename Body>
std::thread start_without_signals(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

ProgressThread::ProgressThread(ProgressEngine& engine) : engine_(engine) {
  register_fork_handlers();
  thread_ = start_without_signals([this] { run(); });
  engine_.lock().share(true);
  lock_of_this_rank = &engine_.lock();
}

ProgressThread::~ProgressThread() {
  stops_ = true;
  { const std::lock_guard wakes(engine_.lock()); }
  thread_.join();
  lock_of_this_rank = nullptr;
  engine_.lock().share(false);
}

void ProgressThread::run() {
  set_log_rank(engine_.world_rank());
  Doorbell& doorbell = engine_.doorbell();
  Backoff backoff = engine_.new_backoff();
  while (!stops_) {
    const bool sleeps = backoff.is_time_to_sleep();
    if (sleeps) doorbell.prepare();
    const Driven driven = take_turn();
    if (driven == Driven::Still && sleeps) {
      doorbell.sleep(longest_sleep_);
      continue;
    }
    if (sleeps) doorbell.cancel();
    if (driven == Driven::Failed) return;
    if (driven == Driven::Still) {
      backoff.pause();
    } else {
      backoff.reset();
      if (driven == Driven::Nothing) rest();
    }
  }
}

ProgressThread::Driven ProgressThread::take_turn() {
  RankLock& lock = engine_.lock();
  if (!lock.try_take()) return Driven::Nothing;
  const Driven driven = engine_.drive_in_background();
  longest_sleep_ = engine_.longest_sleep();
  lock.give_back();
  if (driven != Driven::Nothing) num_rests_ = 0;
  return driven;
}

void ProgressThread::rest() {
  ++num_rests_;
  if (num_rests_ < kBusyRests) {
    cpu_pause();
  } else if (num_rests_ < kBusyRests + kNaps) {
    std::this_thread::sleep_for(kNap);
  } else {
    engine_.lock().park([this] { return !stops_ && !engine_.has_outstanding(); });
    num_rests_ = kBusyRests;
  }
}

}  // namespace sixfold::comm
