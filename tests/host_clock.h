// A clock of streams without a GPU: each of its moments is a quarter of a second after the one before.
#pragma once

#include <atomic>
#include <string>

#include "runtime/comm/observe/stream_clock.h"
#include "runtime/comm/world.h"

namespace sixfold::test {

class HostClock final : public comm::StreamClock {
 public:
  static constexpr double kTick = 0.25;  // seconds

  /// `come`: whether streams have come to all moments so far; outlives the clock.
  explicit HostClock(const std::atomic<bool>& come) : come_(come) {}
  std::unique_ptr<Moment> now(void*) override { return std::make_unique<Tick>(++num_ticks_ * kTick); }
  std::optional<double> seconds(const Moment& from, const Moment& to) override {
    if (!come_) return {};
    return static_cast<const Tick&>(to).at - static_cast<const Tick&>(from).at;
  }

 private:
  struct Tick final : Moment {
    explicit Tick(double seconds) : at(seconds) {}
    double at;
  };
  const std::atomic<bool>& come_;
  int num_ticks_ = 0;
};

/// Exposed seconds under `tag` so far.
inline double exposed_seconds(comm::World& world, const std::string& tag, comm::CommPhase phase) {
  world.count_stalls();
  double seconds = 0;
  for (const comm::CommRow& row : world.comm_table().rows(phase)) {
    if (row.tag == tag) seconds += row.exposed_seconds;
  }
  return seconds;
}

}  // namespace sixfold::test
