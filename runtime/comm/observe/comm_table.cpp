#include "runtime/comm/observe/comm_table.h"

#include <mutex>

namespace sixfold::comm {

namespace {

/// One without sums.
CommRow row_like(const CommRow& row) {
  CommRow same;
  same.tag = row.tag;
  same.primitive = row.primitive;
  same.algorithm = row.algorithm;
  same.backend = row.backend;
  same.group_size = row.group_size;
  same.id = row.id;
  return same;
}

CommRow sum_of(const PhasedRow& row) {
  CommRow sum = row_like(row.sums[0]);
  for (const CommRow& phase : row.sums) sum.add(phase);
  return sum;
}

bool has_sums(const CommRow& row) {
  return row.calls > 0 || row.exposed_seconds > 0;
}

}  // namespace

void CommRow::add(const CommRow& other) {
  calls += other.calls;
  bytes += other.bytes;
  sent_bytes += other.sent_bytes;
  sent_inter_bytes += other.sent_inter_bytes;
  predicted_sent_bytes += other.predicted_sent_bytes;
  seconds += other.seconds;
  wait_seconds += other.wait_seconds;
  exposed_seconds += other.exposed_seconds;
  exposed_wait_seconds += other.exposed_wait_seconds;
  knows_inter &= other.knows_inter;
  knows_waits &= other.knows_waits;
}

PhasedRow& CommTable::row(const std::string& tag, Primitive primitive, Algorithm algorithm, const std::string& backend,
                          int group_size) {
  const auto [found, made] = rows_.try_emplace({tag, primitive, algorithm, backend, group_size});
  if (!made) return found->second;
  for (CommRow& row : found->second.sums) {
    row.tag = tag;
    row.primitive = primitive;
    row.algorithm = algorithm;
    row.backend = backend;
    row.group_size = group_size;
    row.id = static_cast<uint32_t>(rows_.size() - 1);
  }
  return found->second;
}

std::vector<CommRow> CommTable::rows() const {
  const std::lock_guard guard(lock_);
  std::vector<CommRow> rows;
  for (const auto& [key, row] : rows_) {
    const CommRow sum = sum_of(row);
    if (has_sums(sum)) rows.push_back(sum);
  }
  return rows;
}

std::vector<CommRow> CommTable::rows(CommPhase phase) const {
  const std::lock_guard guard(lock_);
  std::vector<CommRow> rows;
  for (const auto& [key, row] : rows_) {
    const CommRow& sum = row.sums[static_cast<size_t>(phase)];
    if (has_sums(sum)) rows.push_back(sum);
  }
  return rows;
}

std::vector<CommRow> CommTable::all_rows() const {
  const std::lock_guard guard(lock_);
  std::vector<CommRow> rows(rows_.size());
  for (const auto& [key, row] : rows_) rows[row.sums[0].id] = sum_of(row);
  return rows;
}

double CommTable::busy_seconds() const {
  const std::lock_guard guard(lock_);
  return busy_seconds_[0] + busy_seconds_[1];
}

double CommTable::busy_seconds(CommPhase phase) const {
  const std::lock_guard guard(lock_);
  return busy_seconds_[static_cast<size_t>(phase)];
}

void CommTable::reset() {
  const std::lock_guard guard(lock_);
  for (auto& [key, row] : rows_) {
    for (CommRow& sum : row.sums) sum = row_like(sum);
  }
  busy_seconds_ = {};
  busy_since_s_ = seconds_now();
}

void CommTable::set_step(int64_t step, double now_s) {
  const std::lock_guard guard(lock_);
  if (num_under_way_ > 0) count_busy(now_s);
  step_ = step;
}

std::optional<std::string> recorded_algorithm(Algorithm algorithm) {
  if (algorithm == Algorithm::Auto) return std::nullopt;
  return std::string(algorithm_name(algorithm));
}

uint64_t operation_bytes(Primitive primitive, size_t count, int size, size_t element_bytes) {
  const bool blocks =
      primitive == Primitive::AllGather || primitive == Primitive::ReduceScatter || primitive == Primitive::AllToAll;
  return uint64_t{count} * element_bytes * (blocks ? static_cast<uint64_t>(size) : 1);
}

uint64_t operation_bytes(const Call& call, size_t element_bytes) {
  if (call.counts == nullptr) return operation_bytes(call.primitive, call.count, call.size, element_bytes);
  const bool gathers = call.primitive == Primitive::AllGather;
  return uint64_t{gathers ? output_count(call) : input_count(call)} * element_bytes;
}

double busbw_factor(Primitive primitive, int size) {
  const double n = size;
  switch (primitive) {
    case Primitive::AllReduce:
      return 2 * (n - 1) / n;
    case Primitive::AllGather:
    case Primitive::ReduceScatter:
    case Primitive::AllToAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace sixfold::comm
