#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/comm/observe/record_files.h"
#include "runtime/core/error.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

namespace {

using Json = nlohmann::ordered_json;

Json known(bool is_known, const Json& value) {
  return is_known ? value : Json(nullptr);
}

/// To the nanosecond, which is what the clock tells.
Json seconds(double s) {
  return std::round(s * 1e9) / 1e9;
}
Json milliseconds(double s) {
  return std::round(s * 1e9) / 1e6;
}

/// The exposed intervals of each operation.
std::vector<Json> exposed_of(const RankRecords& rank) {
  std::vector<Json> exposed(rank.operations.size(), Json::array());
  for (const ExposedInterval& interval : rank.exposed) {
    exposed[interval.operation].push_back({seconds(interval.start_s), seconds(interval.end_s)});
  }
  return exposed;
}

Json line_of(const RankRecords& rank, const LoggedOperation& op, const Json& exposed) {
  const LoggedRow& row = rank.rows[op.row];
  const LoggedGroup& group = rank.groups[op.group];
  const bool is_message = op.peer >= 0;
  const std::optional<std::string> algorithm = recorded_algorithm(row.algorithm);
  return {{"step", op.step},
          {"rank", rank.rank},
          {"group", group.name},
          {"tag", row.tag},
          {"primitive", primitive_name(row.primitive)},
          {"algorithm", algorithm ? Json(*algorithm) : Json(nullptr)},
          {"backend", row.backend},
          {"dtype", dtype_name(op.dtype)},
          {"count", op.count},
          {"bytes", op.bytes},
          {"sent_intra_bytes", known(op.sent_intra_bytes >= 0, op.sent_intra_bytes)},
          {"sent_inter_bytes", known(op.sent_inter_bytes >= 0, op.sent_inter_bytes)},
          {"enqueue_s", seconds(op.enqueued_s)},
          {"start_s", known(op.ended_s > 0, seconds(op.started_s))},
          {"end_s", known(op.ended_s > 0, seconds(op.ended_s))},
          {"wait_ms", known(op.wait_s >= 0, milliseconds(op.wait_s))},
          {"exposed_ms", milliseconds(op.exposed_s)},
          {"exposed_wait_ms", known(op.wait_s >= 0 && op.exposed_wait_s >= 0, milliseconds(op.exposed_wait_s))},
          {"exposed", exposed},
          {"peer", is_message ? Json(group.members[static_cast<size_t>(op.peer)]) : Json(nullptr)},
          {"lane", known(is_message, op.lane)},
          {"sequence", op.sequence}};
}

void write_file(const std::string& flag, const std::string& path, std::span<const RankRecords> ranks,
                void (*write)(std::ostream&, std::span<const RankRecords>)) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::trunc);
  write(file, ranks);
  file.flush();
  if (!file) throw ConfigError(flag + " " + path + ": cannot be written (is the disk full?)");
}

}  // namespace

void write_comm_log(std::ostream& out, std::span<const RankRecords> ranks) {
  struct Place {
    const RankRecords* rank;
    size_t operation;
    const LoggedOperation& get() const { return rank->operations[operation]; }
  };
  std::vector<Place> places;
  std::vector<std::vector<Json>> exposed;
  for (const RankRecords& rank : ranks) {
    exposed.push_back(exposed_of(rank));
    for (size_t i = 0; i < rank.operations.size(); ++i) places.push_back({&rank, i});
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.get().enqueued_s < b.get().enqueued_s; });
  for (const Place& place : places) {
    const auto index = static_cast<size_t>(place.rank - ranks.data());
    out << line_of(*place.rank, place.get(), exposed[index][place.operation]).dump() << "\n";
  }
  for (const RankRecords& rank : ranks) {
    if (rank.num_dropped > 0) out << Json{{"rank", rank.rank}, {"dropped", rank.num_dropped}}.dump() << "\n";
  }
}

void write_record_files(const RecordFiles& files, World& world, const ClockOffset& offset) {
  if (!files.any()) return;
  const std::vector<RankRecords> ranks = gather_records(world, offset);
  World::Section save(world, "writing records");
  for (const RankRecords& rank : ranks) {
    if (rank.num_dropped == 0) continue;
    log_warn("records of rank " + std::to_string(rank.rank) + ": " + std::to_string(rank.num_dropped) +
             " left out at the end, a rank keeps " + std::to_string(kCommLogBytes >> 20) + " MiB");
  }
  if (world.rank() != 0) return;
  write_file("--comm-log", files.comm_log, ranks, write_comm_log);
  write_file("--trace", files.trace, ranks, write_trace);
}

}  // namespace sixfold::comm
