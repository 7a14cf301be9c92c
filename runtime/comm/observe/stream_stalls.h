// StreamStalls: how long the streams of a rank's GPU stand still for communication.
//
// Where a stream follows operations, the CPU does not wait for them, and the time that it spends in calls tells nothing
// of the GPU. What compute loses there passes in the stream: between what was issued before Work::wait() and what is
// issued after it.
#pragma once

#include <deque>
#include <memory>

#include "runtime/comm/observe/operation_watch.h"
#include "runtime/comm/observe/stream_clock.h"

namespace sixfold::comm {

class StreamStalls {
 public:
  /// `clock` and `watch` outlive it.
  StreamStalls(StreamClock& clock, OperationWatch& watch) : clock_(clock), watch_(watch) {}

  using Moment = std::unique_ptr<StreamClock::Moment>;
  Moment begin(void* stream) { return clock_.now(stream); }
  /// The stream was to follow `operation` since `since`, and does from here on.
  void end(Moment since, void* stream, const WatchedOperation& operation);
  /// Under the rank's lock: tells the watch of those that streams have come to.
  void collect();

 private:
  struct Stall {
    Moment from, to;
    WatchedOperation operation;
    CommPhase phase;
  };

  StreamClock& clock_;
  OperationWatch& watch_;
  std::deque<Stall> stalls_;  // in order of time
};

}  // namespace sixfold::comm
