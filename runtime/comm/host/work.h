// WorkState: one operation under way on one rank.
#pragma once

#include <cstdint>

#include "runtime/comm/host/patience.h"
#include "runtime/comm/observe/comm_table.h"

namespace sixfold::comm {

class ProgressEngine;

class WorkState : public Awaited {
 public:
  /// `engine` drives the operation and outlives it; `row` is where its time is counted.
  WorkState(ProgressEngine& engine, CommRow& row) : engine_(engine), row_(&row) {}
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  virtual bool done() const = 0;
  /// Called by whoever has waited for it, once it is done: what they do next follows it.
  virtual void join() {}

  ProgressEngine& engine() const { return engine_; }
  CommRow& row() const { return *row_; }
  /// Its number in the flight recorder; of a batch, that of its first message.
  uint64_t record() const { return record_; }

 protected:
  /// For an object that serves one operation after the other.
  void set_row(CommRow& row) { row_ = &row; }
  void set_record(uint64_t record) { record_ = record; }

 private:
  ProgressEngine& engine_;
  CommRow* row_;
  uint64_t record_ = 0;
};

}  // namespace sixfold::comm
