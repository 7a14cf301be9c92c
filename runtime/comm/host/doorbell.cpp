#include "runtime/comm/host/doorbell.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cerrno>
#include <climits>
#include <thread>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

// Where nobody can wake a sleeper, it looks by itself.
constexpr std::chrono::microseconds kShortSleep{50};

/// Until `word` is no longer `value` and wake_all() says so, or for `longest`.
void wait_on([[maybe_unused]] std::atomic<uint32_t>& word, [[maybe_unused]] uint32_t value,
             std::optional<std::chrono::microseconds> longest) {
#ifdef __linux__
  timespec timeout{};
  if (longest) {
    timeout.tv_sec = static_cast<time_t>(longest->count() / 1000000);
    timeout.tv_nsec = static_cast<long>(longest->count() % 1000000 * 1000);
  }
  // Without FUTEX_PRIVATE_FLAG: the other side may be another process.
  if (syscall(SYS_futex, &word, FUTEX_WAIT, value, longest ? &timeout : nullptr, nullptr, 0) == 0) return;
  if (errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT) return;
#endif
  std::this_thread::sleep_for(std::min(longest.value_or(kShortSleep), kShortSleep));
}

void wake_all([[maybe_unused]] std::atomic<uint32_t>& word) {
#ifdef __linux__
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
#endif
}

}  // namespace

void Doorbell::prepare() {
  state_.exchange(kAsleep, std::memory_order_seq_cst);  // the look that follows is later
}

bool Doorbell::sleep(std::optional<std::chrono::microseconds> longest) {
  wait_on(state_, kAsleep, longest);
  return state_.exchange(kAwake, std::memory_order_acq_rel) == kAwake;
}

void Doorbell::wake() {
  // One ringer of those that come together.
  if (state_.exchange(kAwake, std::memory_order_acq_rel) == kAsleep) wake_all(state_);
}

Doorbells::Doorbells(std::shared_ptr<SharedRegion> region, int rank, std::vector<int> mates)
    : region_(std::move(region)), rank_(rank), mates_(std::move(mates)) {
  SIXFOLD_CHECK_LE(region_bytes(mates_.size()), region_->bytes(), "region of the doorbells");
}

Doorbell& Doorbells::of(int rank) {
  const auto found = std::find(mates_.begin(), mates_.end(), rank);
  SIXFOLD_CHECK(found != mates_.end(), "only ranks of one host have each other's doorbells");
  return reinterpret_cast<Doorbell*>(region_->data())[found - mates_.begin()];
}

void Doorbells::ring_all() {
  for (int mate : mates_) of(mate).ring();
}

}  // namespace sixfold::comm
