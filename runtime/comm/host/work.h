// WorkState: one operation under way on one rank.
#pragma once

#include <cstdint>

#include "runtime/comm/host/patience.h"
#include "runtime/comm/observe/operation_watch.h"

namespace sixfold::comm {

class ProgressEngine;

class WorkState : public Awaited {
 public:
  /// `engine` drives the operation and outlives it.
  explicit WorkState(ProgressEngine& engine) : engine_(engine) {}
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  virtual bool done() const = 0;
  /// Called by whoever has waited for it, once it is done: what they do next follows it.
  virtual void join() {}

  ProgressEngine& engine() const { return engine_; }
  /// As it was issued: what the rank stands still for is charged to it. Of a batch, the first message.
  const WatchedOperation& watched() const { return watched_; }

 protected:
  /// An object may serve one operation after the other.
  void set_watched(const WatchedOperation& watched) { watched_ = watched; }

 private:
  ProgressEngine& engine_;
  WatchedOperation watched_;
};

}  // namespace sixfold::comm
