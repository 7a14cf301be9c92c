#include "runtime/comm/host/patience.h"

#include <cstdio>

#include "runtime/core/error.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

void Patience::look(const Awaited& awaited, double now_s) {
  next_look_s_ = now_s + kLookEvery;
  const std::string reason = awaited.diagnose();
  check_peers(awaited);
  if (is_excused(awaited, now_s) || now_s - since_s_ < timeout_s_) return;
  char idle[32];
  std::snprintf(idle, sizeof(idle), "%.1f", now_s - since_s_);
  fail(failure_, awaited.describe() + ": nothing moved for " + idle + " s (--timeout); " + reason,
       awaited.awaited_ranks());
}

void Patience::check_peers(const Awaited& awaited) {
  const FlightRecorder& recorder = failure_.recorder();
  const std::vector<int> gone = recorder.gone();
  if (!gone.empty()) {
    fail(failure_, awaited.describe() + ": rank " + std::to_string(gone.front()) + " is gone (its process has ended)",
         awaited.awaited_ranks());
  }
  std::vector<int> left = awaited.awaited_ranks();
  std::erase_if(left, [&](int rank) { return !recorder.has_left(rank); });
  // What a rank did before it left is seen by the look after.
  if (!left.empty() && seen_leaving_) {
    fail(failure_, awaited.describe() + ": rank " + std::to_string(left.front()) + " has left the World without it",
         left);
  }
  seen_leaving_ = !left.empty();
}

bool Patience::is_excused(const Awaited& awaited, double now_s) {
  const std::string section = failure_.recorder().section_elsewhere(now_s);
  if (section.empty()) return false;
  since_s_ = now_s;
  if (now_s - warned_s_ >= timeout_s_) {
    warned_s_ = now_s;
    log_warn("still waiting for " + awaited.describe() + ": " + section);
  }
  return true;
}

void Patience::fail(Failure& failure, const std::string& reason, const std::vector<int>& ranks) {
  failure.raise(reason, ranks);
  failure.announce();
  throw CommError("rank " + std::to_string(failure.recorder().rank()) + ": " + reason);
}

}  // namespace sixfold::comm
