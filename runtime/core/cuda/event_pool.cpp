#include "runtime/core/cuda/event_pool.h"

namespace sixfold::cuda {

Event EventPool::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return Event(timed_ == Timed::Yes);
  Event event = std::move(idle_.back());
  idle_.pop_back();
  return event;
}

void EventPool::give_back(Event event) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(event));
}

PooledEvent::PooledEvent(std::shared_ptr<EventPool> pool, cudaStream_t stream)
    : pool_(std::move(pool)), event_(pool_->take()) {
  event_.record(stream);
}

}  // namespace sixfold::cuda
