// Doorbells: how a rank that sleeps is woken by whoever has something for it. Each rank has one for all its groups, in
// memory that all ranks of a host share.
//
//   sleeper   says that it sleeps, looks once more for something to do, sleeps on a futex (futex(2))
//   ringer    does what the sleeper waits for (release), then looks whether it sleeps, and only then wakes it
//
// The ringer's look is a load of a cache line that is written when somebody goes to sleep or is woken, and otherwise
// lies in every core's cache: a rank that does not sleep costs its peers no system call. Nor do they pay a fence, so a
// ringer may look before its own store can be seen, and miss a sleeper that says so at that very moment. That costs the
// sleeper's time, never more: sleeps are bounded, by a millisecond or so.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/host/shared_region.h"

namespace sixfold::comm {

/// All zero at the start: awake. On a cache line of its own.
class alignas(64) Doorbell {
 public:
  /// By whoever has changed what the sleeper looks for. Any thread of any process.
  void ring() {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps the order; the core may not, see above
    if (state_.load(std::memory_order_relaxed) != kAwake) [[unlikely]]
      wake();
  }

  /// By the owner, before it looks a last time: a ring from here on ends the sleep that follows. Two threads that sleep
  /// at a time are both woken by a ring, but the one that wakes first by itself silences it for the other.
  void prepare();
  /// After prepare(), where there was something to do after all.
  void cancel() { state_.store(kAwake, std::memory_order_relaxed); }
  /// After prepare(): until it rings, or for `longest` (empty: without end). May also wake for no reason. True when it
  /// has rung.
  bool sleep(std::optional<std::chrono::microseconds> longest);

 private:
  enum State : uint32_t { kAwake, kAsleep };
  void wake();

  std::atomic<uint32_t> state_;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
              "a futex, shared between processes");

/// What one rank has of its mates' doorbells.
class Doorbells {
 public:
  /// `region`: zeroed, of region_bytes(), shared by `mates`, the ranks of the World that share memory, of which `rank`
  /// is one.
  Doorbells(std::shared_ptr<SharedRegion> region, int rank, std::vector<int> mates);

  static size_t region_bytes(size_t num_mates) { return num_mates * sizeof(Doorbell); }

  Doorbell& own() { return of(rank_); }
  /// Of a mate, by its rank of the World.
  Doorbell& of(int rank);
  void ring_all();

 private:
  std::shared_ptr<SharedRegion> region_;
  int rank_;
  std::vector<int> mates_;
};

}  // namespace sixfold::comm
