// WorkState: one operation under way on one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/comm/observe/comm_table.h"

namespace sixfold::comm {

class ProgressEngine;

class WorkState {
 public:
  /// `engine` drives the operation and outlives it; `row` is where its time is counted.
  WorkState(ProgressEngine& engine, CommRow& row) : engine_(engine), row_(&row) {}
  virtual ~WorkState() = default;
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  virtual bool done() const = 0;
  /// "all_reduce #17 (dp.grads)", for error texts.
  virtual std::string describe() const = 0;
  /// Why it may be stuck: which ranks never entered it. Throws CommError when it sees that two ranks disagree about
  /// what the operation is. Called by slow waits.
  virtual std::string diagnose() const = 0;
  /// Ranks of the World, on this host, that it cannot end without and that have not come: those that never entered the
  /// collective, or have not matched the message. Empty where that cannot be seen. Called by slow waits.
  virtual std::vector<int> awaited_ranks() const { return {}; }

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
