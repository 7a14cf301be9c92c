#include "runtime/comm/observe/stream_stalls.h"

namespace sixfold::comm {

void StreamStalls::end(Moment since, void* stream, const WatchedOperation& operation) {
  stalls_.push_back({std::move(since), clock_.now(stream), operation, watch_.table().phase()});
}

void StreamStalls::collect() {
  while (!stalls_.empty()) {
    const Stall& stall = stalls_.front();
    const std::optional<double> seconds = clock_.seconds(*stall.from, *stall.to);
    if (!seconds) return;
    watch_.expose_stream(stall.operation, stall.phase, *seconds);
    stalls_.pop_front();
  }
}

}  // namespace sixfold::comm
