#include "runtime/comm/observe/comm_table.h"

#include <mutex>

namespace sixfold::comm {

CommRow& CommTable::row(const std::string& tag, Primitive primitive, Algorithm algorithm, const std::string& backend,
                        int group_size) {
  const auto [found, made] = rows_.try_emplace({tag, primitive, algorithm, backend, group_size});
  CommRow& row = found->second;
  if (made) {
    row.tag = tag;
    row.primitive = primitive;
    row.algorithm = algorithm;
    row.backend = backend;
    row.group_size = group_size;
    row.id = static_cast<uint32_t>(rows_.size() - 1);
  }
  return row;
}

std::vector<CommRow> CommTable::rows() const {
  const std::lock_guard guard(lock_);
  std::vector<CommRow> rows;
  for (const auto& [key, row] : rows_) {
    if (row.calls > 0) rows.push_back(row);
  }
  return rows;
}

std::vector<CommRow> CommTable::all_rows() const {
  const std::lock_guard guard(lock_);
  std::vector<CommRow> rows(rows_.size());
  for (const auto& [key, row] : rows_) rows[row.id] = row;
  return rows;
}

double CommTable::busy_seconds() const {
  const std::lock_guard guard(lock_);
  return busy_seconds_;
}

void CommTable::reset() {
  const std::lock_guard guard(lock_);
  for (auto& [key, row] : rows_) {
    row.calls = 0;
    row.bytes = row.sent_bytes = row.sent_inter_bytes = 0;
    row.predicted_sent_bytes = row.seconds = row.wait_seconds = row.exposed_seconds = row.exposed_wait_seconds = 0;
  }
  busy_seconds_ = 0;
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
