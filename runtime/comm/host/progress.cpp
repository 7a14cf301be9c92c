#include "runtime/comm/host/progress.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int kSpins = 256;              // some 5 to 15 us of pauses: longer than most small messages take
constexpr int kYields = 20000;           // then some 20 ms of yields
constexpr double kDiagnoseEvery = 0.25;  // seconds without movement between two looks for a mismatch
}  // namespace

void Backoff::pause() {
  ++rounds_;
  if (!oversubscribed_ && rounds_ < kSpins) {
    cpu_pause();
  } else if (rounds_ < kYields) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

ProgressEngine::ProgressEngine(int world_rank, AbortState& abort, AbortRelay* relay, CommTable& table,
                               WaitPolicy policy)
    : world_rank_(world_rank), abort_(abort), relay_(relay), table_(table), policy_(policy) {}

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

void ProgressEngine::wait(WorkState& work) {
  if (work.done()) return;
  check_abort();
  const double start = seconds_now();
  double last_moved = start, next_look = start + kDiagnoseEvery;
  Backoff backoff(policy_.oversubscribed);
  for (int idle = 0; !work.done();) {
    if (poll()) {
      backoff.reset();
      idle = 0;
      continue;
    }
    if (work.done()) break;
    backoff.pause();
    if (++idle % 64 != 0) continue;
    check_abort();
    const double now = seconds_now();
    if (idle == 64) {
      // The clock is read only when waiting takes longer: from here on it counts.
      last_moved = now;
      next_look = now + kDiagnoseEvery;
    } else if (now >= next_look) {
      stalled(work, now - last_moved);
      next_look = now + kDiagnoseEvery;
    }
  }
  work.row().exposed_seconds += seconds_now() - start;
}

void ProgressEngine::stalled(WorkState& work, double idle_s) {
  const std::string reason = work.diagnose();
  if (idle_s < policy_.timeout_s) return;
  fail(work.describe() + ": nothing moved for " + std::to_string(static_cast<int>(idle_s)) + " s (--timeout); " +
       reason);
}

void ProgressEngine::fail(const std::string& reason) {
  abort_.set(world_rank_, reason);
  if (relay_ != nullptr) relay_->announce();
  throw CommError("rank " + std::to_string(world_rank_) + ": " + reason);
}

void ProgressEngine::check_abort() const {
  if (relay_ != nullptr) relay_->poll();
  if (!abort_.is_set()) return;
  throw CommError("rank " + std::to_string(world_rank_) + ": stopped, because rank " + std::to_string(abort_.rank) +
                  " failed: " + abort_.text);
}

}  // namespace sixfold::comm
