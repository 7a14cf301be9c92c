#include "runtime/comm/observe/stream_stalls.h"

namespace sixfold::comm {

void StreamStalls::end(Moment since, void* stream, const WatchedOperation& operation) {
  stalls_.push_back({std::move(since), clock_.now(stream), operation.row, table_.phase()});
}

void StreamStalls::collect() {
  while (!stalls_.empty()) {
    const Stall& stall = stalls_.front();
    const std::optional<double> seconds = clock_.seconds(*stall.from, *stall.to);
    if (!seconds) return;
    CommRow& row = stall.row->of(stall.phase);
    row.exposed_seconds += *seconds;
    row.knows_waits = false;  // late ranks are not told from data on the way
    stalls_.pop_front();
  }
}

}  // namespace sixfold::comm
