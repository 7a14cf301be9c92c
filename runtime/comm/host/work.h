// WorkState: one operation under way on one rank.
#pragma once

#include <cstdint>

#include "runtime/comm/host/patience.h"
#include "runtime/comm/observe/operation_watch.h"

namespace sixfold::comm {

class ProgressEngine;

class WorkState : public Awaited {
 public:
  /// `engine` drives the operation and outlives it. `stream`: as Options::stream.
  explicit WorkState(ProgressEngine& engine, void* stream = nullptr) : engine_(engine), stream_(stream) {}
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  /// With a stream: that it is launched, since it is the stream that follows it.
  virtual bool done() const = 0;
  /// The stream that is to follow it; nullptr: none is, or it does already.
  void* waiting_stream() const { return joined_ ? nullptr : stream_; }
  /// Called by whoever has waited for it, once it is done(): what is issued to the stream from now on follows it.
  void join() {
    if (waiting_stream() == nullptr) return;
    joined_ = true;
    order_before(stream_);
  }

  ProgressEngine& engine() const { return engine_; }
  /// As it was issued: what the rank stands still for is charged to it. Of a batch, the first message.
  const WatchedOperation& watched() const { return watched_; }

 protected:
  void* stream() const { return stream_; }
  /// An object may serve one operation after the other.
  void set_watched(const WatchedOperation& watched) {
    watched_ = watched;
    watched_.in_stream = stream_ != nullptr;
  }

 private:
  /// Of works that may have a stream.
  virtual void order_before(void* /*stream*/) {}

  ProgressEngine& engine_;
  void* stream_;
  bool joined_ = false;
  WatchedOperation watched_;
};

}  // namespace sixfold::comm
