#include "runtime/comm/host/progress.h"

#include <sched.h>

#include <algorithm>

namespace sixfold::comm {

namespace {
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int kSpins = 256;  // some 5 to 15 us of pauses: longer than most small messages take
// What a ring that was missed costs at most.
constexpr std::chrono::microseconds kSleep{1000};
// Where nothing rings: some of what a message between hosts takes.
constexpr std::chrono::microseconds kShortSleep{50};
}  // namespace

void Backoff::pause() {
  ++rounds_;
  if (!oversubscribed_ && rounds_ < kSpins) {
    cpu_pause();
  } else {
    sched_yield();
  }
}

ProgressEngine::ProgressEngine(Failure& failure, CommTable& table, Doorbell& doorbell, WaitPolicy policy)
    : failure_(failure), recorder_(failure.recorder()), table_(table), doorbell_(doorbell), policy_(policy) {}

void ProgressEngine::remove(Progressable& group) {
  std::erase(groups_, &group);
}

bool ProgressEngine::poll() {
  bool moved = false;
  for (Progressable* group : groups_) moved |= group->poll();
  return moved;
}

void ProgressEngine::poll_exposed() {
  WorkState* work = nullptr;
  for (Progressable* group : groups_) {
    work = group->outstanding();
    if (work != nullptr) break;
  }
  if (work == nullptr) return;
  check_abort();
  CommRow& row = work->row();  // the work may be done and gone after the poll, its row stays
  const double start = seconds_now();
  poll();
  row.exposed_seconds += seconds_now() - start;
}

std::chrono::microseconds ProgressEngine::longest_sleep() const {
  const bool rings = std::all_of(groups_.begin(), groups_.end(),
                                 [](Progressable* group) { return group->wakes() || group->outstanding() == nullptr; });
  return rings ? kSleep : kShortSleep;
}

void ProgressEngine::wait(WorkState& work) {
  if (work.done()) return;
  check_abort();
  const double start = seconds_now();
  Patience patience(failure_, policy_.timeout_s, start);
  bool recorded = false;
  Backoff backoff(policy_.oversubscribed);
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
      ++counts_.sleeps;
      counts_.woken += doorbell_.sleep(longest_sleep());
    } else {
      backoff.pause();
    }
    if (++idle % 64 != 0 && !sleeps) continue;
    check_abort();
    const double now = seconds_now();
    if (idle == 64) {
      // The clock is read only when waiting takes longer: from here on it counts.
      patience.restart(now);
      recorder_.wait(work.record(), now);
      recorded = true;
    } else if (patience.is_time_to_look(now)) {
      patience.look(work, now);
    }
  }
  if (recorded) recorder_.end_wait();
  work.row().exposed_seconds += seconds_now() - start;
}

}  // namespace sixfold::comm
