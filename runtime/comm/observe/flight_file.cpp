#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/comm/observe/flight_report.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

using Json = nlohmann::ordered_json;

std::string presence_name(RankSnapshot::Presence presence) {
  switch (presence) {
    case RankSnapshot::Presence::NotStarted:
      return "not started";
    case RankSnapshot::Presence::Running:
      return "running";
    case RankSnapshot::Presence::Left:
      return "left";
    case RankSnapshot::Presence::Gone:
      return "gone";
  }
  SIXFOLD_CHECK(false, "unknown presence");
  return "";
}

/// How long before the failure; null where it has not happened.
Json ago(double time_s, double now_s) {
  return time_s > 0 ? Json(now_s - time_s) : Json(nullptr);
}

Json json_of(const OperationRecord& record, double now_s) {
  const Operation& operation = record.operation;
  const Signature& signature = operation.signature;
  Json json = {{"number", record.number},
               {"group", operation.group.str()},
               {"sequence", operation.sequence},
               {"tag", operation.tag.str()},
               {"primitive", primitive_name(signature.primitive)},
               {"algorithm", algorithm_name(signature.algorithm)},
               {"count", signature.count},
               {"dtype", dtype_name(signature.dtype)}};
  if (operation.peer >= 0) {
    json["peer"] = operation.peer;
  } else {
    json["op"] = reduce_op_name(signature.op);
    json["root"] = signature.root;
  }
  json["state"] = record.state();
  json["issued_s_ago"] = ago(record.issued_s, now_s);
  json["started_s_ago"] = ago(record.started_s, now_s);
  json["done_s_ago"] = ago(record.done_s, now_s);
  return json;
}

Json json_of(const RankSnapshot& rank, double now_s) {
  Json json = {{"rank", rank.rank},
               {"presence", presence_name(rank.presence)},
               {"pid", rank.process.pid},
               {"waiting_s", ago(rank.waiting_since_s, now_s)},
               {"waiting_for", rank.waiting_since_s > 0 ? Json(rank.waiting_for) : Json(nullptr)},
               {"section", rank.section.empty() ? Json(nullptr) : Json(rank.section)},
               {"operations", Json::array()}};
  for (const OperationRecord& record : rank.records) json["operations"].push_back(json_of(record, now_s));
  return json;
}

}  // namespace

void check_flight_folder(const std::string& flag, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    const std::string why = error ? error.message() : "it is not a folder";
    throw ConfigError(flag + " " + folder + ": " + why + " (allowed: a folder that can be written to)");
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw ConfigError(flag + " " + folder + ": " + std::strerror(errno) +
                      " (allowed: a folder that can be written to)");
  }
}

std::string write_flight_file(const std::string& path, const std::string& reason, int reporter,
                              const std::vector<RankSnapshot>& ranks, double now_s) {
  Json json = {{"reason", reason}, {"reported_by", reporter}, {"ranks", Json::array()}};
  for (const RankSnapshot& rank : ranks) json["ranks"].push_back(json_of(rank, now_s));
  std::ofstream file(path);
  // Tags and error texts may hold any bytes.
  file << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  file.flush();
  if (!file) throw CommError("cannot write " + path + ": " + std::strerror(errno));
  return path;
}

}  // namespace sixfold::comm
