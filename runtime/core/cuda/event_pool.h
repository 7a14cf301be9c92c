// EventPool: events that are used again and again. Making one is a call of the driver that may wait; after some
// operations all are made.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/cuda/stream.h"

namespace sixfold::cuda {

/// Any thread: events come back from whoever drops the last handle to an operation.
class EventPool {
 public:
  Event take();
  void give_back(Event event);

 private:
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
