// AbortState: how one rank's failure stops all. Lives in memory that every rank of a host can read; between hosts a
// relay takes it along.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>

namespace sixfold::comm {

/// All zero at the start. The first failure wins; its text is readable once state is 2.
struct AbortState {
  std::atomic<int> state;  // 0: none, 1: claimed by the rank that has failed first, 2: set
  int rank;
  char text[2040];

  bool is_set() const { return state.load(std::memory_order_acquire) == 2; }

  /// True for one rank, which then looks around and publishes.
  bool claim() {
    int none = 0;
    return state.compare_exchange_strong(none, 1, std::memory_order_acq_rel);
  }
  /// By whoever has claimed it.
  void publish(int world_rank, const std::string& reason) {
    rank = world_rank;
    const size_t length = std::min(reason.size(), sizeof(text) - 1);
    std::memcpy(text, reason.data(), length);
    text[length] = '\0';
    state.store(2, std::memory_order_release);
  }
  void set(int world_rank, const std::string& reason) {
    if (claim()) publish(world_rank, reason);
  }
};
static_assert(std::atomic<int>::is_always_lock_free, "shared between processes");

/// Takes failures from one host's AbortState to the others'.
class AbortRelay {
 public:
  /// A failure on another host: who, and why.
  struct Notice {
    int rank;
    std::string reason;
  };
  virtual ~AbortRelay() = default;
  /// Once the AbortState is set: tells the other hosts, if it is this rank that has failed, and once. Returns soon.
  virtual void announce() = 0;
  /// Word of a failure, once, when it has come. Never blocks.
  virtual std::optional<Notice> poll() = 0;
};

}  // namespace sixfold::comm
