#include "runtime/comm/host/progress.h"

#include <sched.h>

#include <algorithm>

#include "runtime/core/log.h"

namespace sixfold::comm {

namespace {
constexpr int kLookEvery = 64;  // rounds in which nothing moves, between looks at the clock and at failures
constexpr int kSpins = 256;     // some 5 to 15 us of pauses: longer than most small messages take
// Then some yields. By the clock: where something else computes on this core, one alone may take milliseconds, and a
// sleeper that is woken has its turn earlier.
constexpr double kYieldFor = 0.001;
// What a ring that was missed costs at most.
constexpr std::chrono::microseconds kSleep{1000};
// Where nothing rings: some of what a message between hosts takes.
constexpr std::chrono::microseconds kShortSleep{50};
}  // namespace

void Backoff::pause() {
  ++rounds_;
  if (!oversubscribed_ && rounds_ < kSpins) {
    cpu_pause();
    return;
  }
  if (yields_since_s_ == 0) yields_since_s_ = seconds_now();
  sched_yield();
  // Now and then: when ranks take turns on a core, a look at the clock costs as much as a turn.
  is_time_to_sleep_ = rounds_ % 8 == 0 && seconds_now() - yields_since_s_ > kYieldFor;
}

ProgressEngine::ProgressEngine(Failure& failure, OperationWatch& watch, RankLock& lock, Doorbell& doorbell,
                               WaitPolicy policy)
    : failure_(failure),
      recorder_(failure.recorder()),
      watch_(watch),
      lock_(lock),
      doorbell_(doorbell),
      policy_(policy) {}

bool ProgressEngine::poll() {
  bool moved = false;
  for (Progressable* group : groups_) moved |= group->poll();
  return moved;
}

void ProgressEngine::check_abort() {
  if (background_error_) std::rethrow_exception(background_error_);
  try {
    failure_.check();
  } catch (...) {
    abandon();
    throw;
  }
}

void ProgressEngine::fail(const std::string& reason) {
  try {
    Patience::fail(failure_, reason);
  } catch (...) {
    abandon();
    throw;
  }
}

void ProgressEngine::abandon() noexcept {
  has_failed_ = true;
  for (Progressable* group : groups_) group->abandon();
}

void ProgressEngine::poll_exposed() {
  const double start = seconds_now();
  const std::lock_guard guard(lock_);
  std::shared_ptr<WorkState> work;
  for (Progressable* group : groups_) {
    work = group->outstanding();
    if (work != nullptr) break;
  }
  if (work == nullptr) return;
  OperationWatch::Standstill still(watch_, start);
  try {
    check_abort();
    poll();
  } catch (...) {
    abandon();
    throw;
  }
  still.count(work->watched(), seconds_now());
}

void ProgressEngine::progress() {
  if (!lock_.is_shared()) return poll_exposed();
  if (!has_failed_ && !abort().is_set()) return;
  const std::lock_guard guard(lock_);
  check_abort();
}

bool ProgressEngine::has_outstanding() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](Progressable* group) { return group->outstanding() != nullptr; });
}

std::chrono::microseconds ProgressEngine::longest_sleep() const {
  const bool rings = std::all_of(groups_.begin(), groups_.end(),
                                 [](Progressable* group) { return group->wakes() || group->outstanding() == nullptr; });
  return rings ? kSleep : kShortSleep;
}

ProgressEngine::Driven ProgressEngine::drive_in_background() noexcept {
  if (has_failed_) return Driven::Failed;
  try {
    if (!has_outstanding()) return Driven::Nothing;
    if (abort().is_set() || ++num_drives_ % kLookEvery == 0) check_abort();
    return poll() ? Driven::Moved : Driven::Still;
  } catch (...) {
    background_error_ = std::current_exception();
    abandon();
    return Driven::Failed;
  }
}

void ProgressEngine::wait(WorkState& work) {
  if (work.done()) return;
  const double start = seconds_now();
  const std::lock_guard guard(lock_);
  drive_to_end(work, start);
}

void ProgressEngine::wait_and_join(WorkState& work) {
  void* const stream = work.waiting_stream();
  if (stream == nullptr) return wait(work);
  try {
    StreamStalls::Moment since = stalls_ ? stalls_->begin(stream) : nullptr;
    wait(work);
    work.join();
    if (stalls_) stalls_->end(std::move(since), stream, work.watched());
  } catch (...) {
    const std::lock_guard guard(lock_);
    abandon();
    throw;
  }
}

void ProgressEngine::count_stalls() {
  if (!stalls_) return;
  const std::lock_guard guard(lock_);
  stalls_->collect();
}

void ProgressEngine::finish(Progressable& group) {
  while (const std::shared_ptr<WorkState> work = group.outstanding()) {
    if (!work->done()) {
      drive_to_end(*work, seconds_now());
      continue;
    }
    // Done for the rank, which goes on; a device is still at it, with what the group owns.
    check_abort();
    group.poll();
  }
}

void ProgressEngine::close(Progressable& group, const std::string& name, bool drives) {
  const std::lock_guard guard(lock_);
  try {
    if (drives && !abort().is_set()) finish(group);
  } catch (const std::exception& error) {
    log_error("while closing group " + name + ": " + error.what());
  }
  std::erase(groups_, &group);
}

void ProgressEngine::drive_to_end(WorkState& work, double start_s) {
  OperationWatch::Standstill still(watch_, start_s);
  awaited_ = &work;
  try {
    check_abort();
    drive_until_done(work, start_s);
  } catch (...) {
    awaited_ = nullptr;
    abandon();
    throw;
  }
  awaited_ = nullptr;
  still.count(work.watched(), seconds_now());
}

void ProgressEngine::drive_until_done(WorkState& work, double start_s) {
  Patience patience(failure_, policy_.timeout_s, start_s);
  bool recorded = false;
  Backoff backoff = new_backoff();
  for (int idle = 0; !work.done();) {
    const bool sleeps = backoff.is_time_to_sleep();
    if (sleeps) doorbell_.prepare();
    if (poll() || work.done()) {
      if (sleeps) doorbell_.cancel();
      backoff.reset();
      idle = 0;
      continue;
    }
    if (sleeps) {
      ++num_sleeps_;
      num_woken_ += doorbell_.sleep(longest_sleep());
    } else {
      backoff.pause();
    }
    if (++idle % kLookEvery != 0 && !sleeps) continue;
    check_abort();
    const double now = seconds_now();
    if (idle == kLookEvery) {
      // The clock is read only when waiting takes longer: from here on it counts.
      patience.restart(now);
      recorder_.wait(work.watched().record, now);
      recorded = true;
    } else if (patience.is_time_to_look(now)) {
      patience.look(work, now);
    }
  }
  if (recorded) recorder_.end_wait();
}

}  // namespace sixfold::comm
