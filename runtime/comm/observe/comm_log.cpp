#include "runtime/comm/observe/comm_log.h"

#include <algorithm>
#include <mutex>

namespace sixfold::comm {

CommLog::CommLog(size_t max_bytes, const CommTable& table, RankLock& lock)
    : table_(table), lock_(lock), operations_(max_bytes / 2), exposed_(max_bytes / 4), spans_(max_bytes / 4) {}

uint32_t CommLog::add_group(const std::string& name, const std::vector<int>& members) {
  groups_.push_back({name, members});
  return static_cast<uint32_t>(groups_.size() - 1);
}

uint64_t CommLog::issue(const LoggedOperation& operation) {
  if (stopped_) return kNotLogged;
  if (!operations_.push_back(operation)) {
    ++num_dropped_;
    return kNotLogged;
  }
  operations_[operations_.size() - 1].step = static_cast<int32_t>(table_.step());
  return first_number_ + operations_.size() - 1;
}

LoggedOperation* CommLog::find(uint64_t number) {
  // Operations that were under way when the log was cleared have smaller numbers.
  if (stopped_ || number == kNotLogged || number < first_number_) return nullptr;
  return &operations_[number - first_number_];
}

void CommLog::expose(uint64_t operation, double start_s, double end_s, double wait_s) {
  LoggedOperation* logged = find(operation);
  if (logged == nullptr) return;
  logged->exposed_s += end_s - start_s;
  logged->exposed_wait_s += wait_s;
  if (end_s - start_s < kShortestInterval) return;
  if (!exposed_.push_back({start_s, end_s, wait_s, operation - first_number_})) ++num_dropped_;
}

int32_t CommLog::unit(const std::string& name) {
  const auto found = std::find(units_.begin(), units_.end(), name);
  if (found != units_.end()) return static_cast<int32_t>(found - units_.begin());
  units_.push_back(name);
  return static_cast<int32_t>(units_.size() - 1);
}

void CommLog::span(ComputeSpan::Kind kind, int32_t unit, int micro_batch, double start_s, double end_s) {
  if (stopped_) return;
  if (!spans_.push_back({start_s, end_s, static_cast<int32_t>(table_.step()), micro_batch, unit, kind})) {
    const std::lock_guard guard(lock_);
    ++num_dropped_;
  }
}

void CommLog::clear() {
  const std::lock_guard guard(lock_);
  first_number_ += operations_.size();
  operations_.clear();
  exposed_.clear();
  spans_.clear();
  num_dropped_ = 0;
}

void CommLog::stop() {
  const std::lock_guard guard(lock_);
  stopped_ = true;
}

RankRecords CommLog::records(int rank) const {
  RankRecords records;
  records.rank = rank;
  for (const CommRow& row : table_.all_rows()) {
    records.rows.push_back({row.tag, row.primitive, row.algorithm, row.backend, row.group_size});
  }
  const std::lock_guard guard(lock_);
  records.groups = groups_;
  records.units = units_;
  records.operations = operations_.to_vector();
  records.exposed = exposed_.to_vector();
  records.spans = spans_.to_vector();
  records.num_dropped = num_dropped_;
  return records;
}

}  // namespace sixfold::comm
