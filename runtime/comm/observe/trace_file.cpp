#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "runtime/comm/observe/record_files.h"

namespace sixfold::comm {

namespace {

using Json = nlohmann::ordered_json;
using Nanoseconds = int64_t;  // since the first event: sums of rounded times nest as the times did

constexpr int kComputeTrack = 0, kStillTrack = 1, kFirstCommTrack = 2;

struct Slice {
  Nanoseconds start, end;
  Json event;  // but for ts and dur
};

/// Slices that nest.
struct Track {
  std::string name;
  std::vector<Slice> slices;
  std::vector<std::pair<Nanoseconds, Json>> flows;  // but for ts
};

/// As microseconds with three digits behind the point; ordinary formatting of a double would lose some in long runs.
Json microseconds(Nanoseconds time) {
  return static_cast<double>(time) / 1e3;
}

/// Where an operation is drawn.
struct Drawn {
  int rank, track;
  Nanoseconds start, end;
};

/// Of the two ends of a message: group, sender, receiver, lane, sequence.
using MessageKey = std::tuple<std::string, int, int, int, uint64_t>;

class TraceBuilder {
 public:
  explicit TraceBuilder(std::span<const RankRecords> ranks) : ranks_(ranks) {
    double first = std::numeric_limits<double>::infinity();
    for (const RankRecords& rank : ranks) {
      for (const LoggedOperation& op : rank.operations) first = std::min(first, op.enqueued_s);
      for (const ComputeSpan& span : rank.spans) first = std::min(first, span.start_s);
      for (const ExposedInterval& interval : rank.exposed) first = std::min(first, interval.start_s);
    }
    first_s_ = first;
    for (const RankRecords& rank : ranks) {
      tracks_.emplace_back();
      add_compute(rank);
      add_exposed(rank);
      add_operations(rank);
    }
    add_flows();
  }

  void write(std::ostream& out) {
    out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    const char* separator = "\n";
    const auto put = [&](const Json& event) {
      out << separator << event.dump();
      separator = ",\n";
    };
    for (size_t i = 0; i < tracks_.size(); ++i) {
      const int pid = ranks_[i].rank;
      put(metadata(pid, std::nullopt, "process_name", "name", "rank " + std::to_string(pid)));
      put(metadata(pid, std::nullopt, "process_sort_index", "sort_index", pid));
      for (auto& [tid, track] : tracks_[i]) {
        put(metadata(pid, tid, "thread_name", "name", track.name));
        put(metadata(pid, tid, "thread_sort_index", "sort_index", tid));
        for (const Json& event : events_of(pid, tid, track)) put(event);
      }
    }
    out << "\n]}\n";
  }

 private:
  static Json metadata(int pid, std::optional<int> tid, const char* what, const char* key, const Json& value) {
    Json event = {{"name", what}, {"ph", "M"}, {"pid", pid}};
    if (tid) event["tid"] = *tid;
    event["args"] = {{key, value}};
    return event;
  }

  Nanoseconds time(double s) const { return std::llround((s - first_s_) * 1e9); }

  Track& track(int tid, const std::string& name) {
    Track& track = tracks_.back()[tid];
    track.name = name;
    return track;
  }

  void add_compute(const RankRecords& rank) {
    for (const ComputeSpan& span : rank.spans) {
      const char* names[] = {"forward", "backward", "optimizer"};
      std::string name = names[static_cast<size_t>(span.kind)];
      if (span.unit >= 0) name = rank.units[static_cast<size_t>(span.unit)] + " " + name;
      if (span.unit < 0 && span.micro_batch >= 0) name += " of micro-batch " + std::to_string(span.micro_batch);
      Json args = {{"step", span.step}};
      if (span.micro_batch >= 0) args["micro_batch"] = span.micro_batch;
      track(kComputeTrack, "compute")
          .slices.push_back({time(span.start_s),
                             time(span.end_s),
                             {{"name", name}, {"cat", "compute"}, {"ph", "X"}, {"args", args}}});
    }
  }

  void add_exposed(const RankRecords& rank) {
    for (const ExposedInterval& interval : rank.exposed) {
      const LoggedOperation& op = rank.operations[interval.operation];
      Json args = {{"step", op.step}};
      if (op.wait_s >= 0) args["late_ranks_ms"] = interval.wait_s * 1e3;
      track(kStillTrack, "standing still")
          .slices.push_back({time(interval.start_s),
                             time(interval.end_s),
                             {{"name", rank.rows[op.row].tag}, {"cat", "exposed"}, {"ph", "X"}, {"args", args}}});
    }
  }

  void add_operations(const RankRecords& rank) {
    std::vector<const LoggedOperation*> ended;
    for (const LoggedOperation& op : rank.operations) {
      if (op.ended_s > 0) ended.push_back(&op);
    }
    std::stable_sort(ended.begin(), ended.end(),
                     [](const LoggedOperation* a, const LoggedOperation* b) { return a->started_s < b->started_s; });
    std::map<std::string, std::vector<std::pair<int, Nanoseconds>>>
        layers;  // by kind: tracks, until when they are taken
    int next_track = kFirstCommTrack;
    for (const LoggedOperation* op : ended) {
      const Nanoseconds start = time(op->started_s), end = time(op->ended_s);
      const std::string kind = track_name(rank, *op);
      // What would overlap another slice, and so not nest, goes to a further track of the same kind.
      auto& taken = layers[kind];
      auto free = std::find_if(taken.begin(), taken.end(), [&](const auto& layer) { return layer.second <= start; });
      if (free == taken.end()) free = taken.insert(taken.end(), {next_track++, 0});
      free->second = end;
      const auto layer = std::distance(taken.begin(), free) + 1;
      track(free->first, layer == 1 ? kind : kind + " (" + std::to_string(layer) + ")")
          .slices.push_back({start, end, operation_event(rank, *op)});
      remember_message(rank, *op, {static_cast<int>(tracks_.size()) - 1, free->first, start, end});
    }
  }

  static std::string track_name(const RankRecords& rank, const LoggedOperation& op) {
    const std::string& group = rank.groups[op.group].name;
    if (op.peer < 0) return group;
    const bool sends = rank.rows[op.row].primitive == Primitive::Send;
    return group + (sends ? " send, lane " : " recv, lane ") + std::to_string(op.lane);
  }

  static Json operation_event(const RankRecords& rank, const LoggedOperation& op) {
    const LoggedRow& row = rank.rows[op.row];
    Json args = {{"step", op.step},
                 {"group", rank.groups[op.group].name},
                 {"backend", row.backend},
                 {"sequence", op.sequence},
                 {"bytes", op.bytes},
                 {"queued_ms", (op.started_s - op.enqueued_s) * 1e3},
                 {"exposed_ms", op.exposed_s * 1e3}};
    if (const auto algorithm = recorded_algorithm(row.algorithm)) args["algorithm"] = *algorithm;
    if (op.wait_s >= 0) args["wait_ms"] = op.wait_s * 1e3;
    if (op.sent_intra_bytes >= 0) {
      args["sent_intra_bytes"] = op.sent_intra_bytes;
      args["sent_inter_bytes"] = op.sent_inter_bytes;
    }
    if (op.peer >= 0) args["peer"] = rank.groups[op.group].members[static_cast<size_t>(op.peer)];
    return {{"name", row.tag}, {"cat", primitive_name(row.primitive)}, {"ph", "X"}, {"args", args}};
  }

  void remember_message(const RankRecords& rank, const LoggedOperation& op, const Drawn& drawn) {
    if (op.peer < 0) return;
    const LoggedGroup& group = rank.groups[op.group];
    const int peer = group.members[static_cast<size_t>(op.peer)];
    const bool sends = rank.rows[op.row].primitive == Primitive::Send;
    const MessageKey key{group.name, sends ? rank.rank : peer, sends ? peer : rank.rank, op.lane, op.sequence};
    (sends ? sends_ : receives_).emplace(key, drawn);
  }

  /// An arrow binds to the slice that is there at its time: it leaves when the send starts, and comes in the second
  /// half of the receive.
  void add_flows() {
    int64_t id = 0;
    for (const auto& [key, send] : sends_) {
      const auto found = receives_.find(key);
      if (found == receives_.end()) continue;
      const Drawn& receive = found->second;
      const Nanoseconds arrives = std::max((receive.start + receive.end) / 2, std::min(send.start, receive.end));
      const Json common = {{"name", "message"}, {"cat", "message"}, {"id", ++id}};
      Json leaves = common, comes = common;
      leaves["ph"] = "s";
      comes["ph"] = "f";
      comes["bp"] = "e";
      flows_of(send).push_back({send.start, leaves});
      flows_of(receive).push_back({arrives, comes});
    }
  }
  std::vector<std::pair<Nanoseconds, Json>>& flows_of(const Drawn& drawn) {
    return tracks_[static_cast<size_t>(drawn.rank)].at(drawn.track).flows;
  }

  /// In order of time; of slices that start together the outer one first, and slices before arrows.
  static std::vector<Json> events_of(int pid, int tid, Track& track) {
    std::stable_sort(track.slices.begin(), track.slices.end(), [](const Slice& a, const Slice& b) {
      return a.start != b.start ? a.start < b.start : a.end > b.end;
    });
    std::stable_sort(track.flows.begin(), track.flows.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Json> events;
    const auto put = [&](Json event, Nanoseconds start, std::optional<Nanoseconds> length) {
      event["ts"] = microseconds(start);
      if (length) event["dur"] = microseconds(*length);
      event["pid"] = pid;
      event["tid"] = tid;
      events.push_back(std::move(event));
    };
    auto flow = track.flows.begin();
    const auto put_flows_before = [&](Nanoseconds time) {
      for (; flow != track.flows.end() && flow->first < time; ++flow) put(flow->second, flow->first, std::nullopt);
    };
    for (const Slice& slice : track.slices) {
      put_flows_before(slice.start);
      put(slice.event, slice.start, slice.end - slice.start);
    }
    put_flows_before(std::numeric_limits<Nanoseconds>::max());
    return events;
  }

  std::span<const RankRecords> ranks_;
  double first_s_ = 0;
  std::vector<std::map<int, Track>> tracks_;  // by place of the rank, by thread
  std::map<MessageKey, Drawn> sends_, receives_;
};

}  // namespace

void write_trace(std::ostream& out, std::span<const RankRecords> ranks) {
  TraceBuilder(ranks).write(out);
}

}  // namespace sixfold::comm
