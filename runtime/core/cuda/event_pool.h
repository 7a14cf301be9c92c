// EventPool: events that are used again and again. Making one is a call of the driver that may wait; after some
// operations all are made.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/cuda/stream.h"

namespace sixfold::cuda {

/// Any thread: events come back from whoever drops the last handle to an operation.
class EventPool {
 public:
  /// Whether its events tell time (elapsed_seconds), which makes them a little slower.
  enum class Timed : uint8_t { No, Yes };
  explicit EventPool(Timed timed = Timed::No) : timed_(timed) {}
  Event take();
  void give_back(Event event);

 private:
  const Timed timed_;
  std::mutex mutex_;
  std::vector<Event> idle_;
};

/// An event of a pool, recorded when it is made.
class PooledEvent {
 public:
  PooledEvent(std::shared_ptr<EventPool> pool, cudaStream_t stream);
  ~PooledEvent() { pool_->give_back(std::move(event_)); }
  PooledEvent(const PooledEvent&) = delete;
  PooledEvent& operator=(const PooledEvent&) = delete;
  const Event& event() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  Event event_;
};

}  // namespace sixfold::cuda
