#include "runtime/comm/host/progress.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "runtime/core/error.h"
#include "runtime/core/log.h"

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

ProgressEngine::ProgressEngine(Failure& failure, CommTable& table, WaitPolicy policy)
    : failure_(failure), recorder_(failure.recorder()), table_(table), policy_(policy) {}

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
  Stall stall{start, start};
  double next_look = start + kDiagnoseEvery;
  bool recorded = false;
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
      stall = {now, now};
      next_look = now + kDiagnoseEvery;
      recorder_.wait(work.record(), now);
      recorded = true;
    } else if (now >= next_look) {
      stalled(work, stall);
      next_look = now + kDiagnoseEvery;
    }
  }
  if (recorded) recorder_.end_wait();
  work.row().exposed_seconds += seconds_now() - start;
}

void ProgressEngine::stalled(WorkState& work, Stall& stall) {
  const std::string reason = work.diagnose();
  check_peers(work);
  const double now = seconds_now();
  const std::string section = recorder_.section_elsewhere(now);
  if (!section.empty()) {
    stall.since = now;
    if (now - stall.warned < policy_.timeout_s) return;
    stall.warned = now;
    log_warn("still waiting for " + work.describe() + ": " + section);
    return;
  }
  if (now - stall.since < policy_.timeout_s) return;
  char idle[32];
  std::snprintf(idle, sizeof(idle), "%.1f", now - stall.since);
  fail(work.describe() + ": nothing moved for " + idle + " s (--timeout); " + reason, work.awaited_ranks());
}

void ProgressEngine::check_peers(WorkState& work) {
  const std::vector<int> gone = recorder_.gone();
  if (!gone.empty()) {
    fail(work.describe() + ": rank " + std::to_string(gone.front()) + " is gone (its process has ended)",
         work.awaited_ranks());
  }
  const auto left = [&] {
    std::vector<int> ranks = work.awaited_ranks();
    std::erase_if(ranks, [&](int rank) { return !recorder_.has_left(rank); });
    return ranks;
  };
  if (left().empty()) return;
  // What a rank sent before it left is there by now.
  if (poll() || work.done()) return;
  const std::vector<int> ranks = left();
  if (ranks.empty()) return;
  fail(work.describe() + ": rank " + std::to_string(ranks.front()) + " has left the World without it", ranks);
}

void ProgressEngine::fail(const std::string& reason, const std::vector<int>& awaited) {
  failure_.raise(reason, awaited);
  failure_.announce();
  throw CommError("rank " + std::to_string(world_rank()) + ": " + reason);
}

}  // namespace sixfold::comm
