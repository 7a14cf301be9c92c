// What the Trace Event Format asks of a trace, and what of ours beside.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace sixfold::test {

using nlohmann::json;

/// The events of a trace, once looked through.
struct Trace {
  std::vector<json> slices;                                // ph X
  std::map<std::pair<int, int>, std::string> track_names;  // by process and thread
  std::map<int, std::string> process_names;
  std::map<int64_t, json> flow_starts, flow_ends;

  std::vector<json> slices_of(int pid, const std::string& track) const {
    std::vector<json> found;
    for (const json& slice : slices) {
      if (slice["pid"] == pid && track_names.at({pid, slice["tid"]}) == track) found.push_back(slice);
    }
    return found;
  }
};

inline void expect_time(const json& event, const char* key) {
  ASSERT_TRUE(event.contains(key) && event[key].is_number()) << event;
  EXPECT_TRUE(std::isfinite(event[key].get<double>())) << event;
  EXPECT_GE(event[key].get<double>(), 0) << event;
}

/// Slices of one track are in order of time, and each lies within the one that it begins in.
inline void expect_nested(const std::vector<json>& slices) {
  std::vector<double> ends;
  double last = 0;
  for (const json& slice : slices) {
    const double start = slice["ts"], end = start + slice["dur"].get<double>();
    EXPECT_GE(start, last) << slice;
    last = start;
    // Sums of microseconds with three digits: to half a nanosecond.
    while (!ends.empty() && ends.back() <= start + 5e-4) ends.pop_back();
    if (!ends.empty()) {
      EXPECT_LE(end, ends.back() + 5e-4) << slice;
    }
    ends.push_back(end);
  }
}

/// Whether a slice of the event's track is there at its time.
inline bool is_bound(const Trace& trace, const json& flow) {
  for (const json& slice : trace.slices) {
    const double ts = flow["ts"], start = slice["ts"], end = start + slice["dur"].get<double>();
    if (slice["pid"] == flow["pid"] && slice["tid"] == flow["tid"] && start <= ts && ts <= end + 5e-4) return true;
  }
  return false;
}

inline void add_event(Trace& trace, const json& event) {
  for (const char* key : {"name", "ph", "pid"}) ASSERT_TRUE(event.contains(key)) << event;
  ASSERT_TRUE(event["pid"].is_number_integer()) << event;
  const std::string phase = event["ph"], name = event["name"];
  const int pid = event["pid"];
  if (phase == "M") {
    ASSERT_TRUE(event.contains("args")) << event;
    if (name == "process_name") trace.process_names[pid] = event["args"]["name"];
    if (name == "thread_name") trace.track_names[{pid, event["tid"]}] = event["args"]["name"];
    return;
  }
  ASSERT_TRUE(event.contains("cat") && event.contains("tid") && event["tid"].is_number_integer()) << event;
  expect_time(event, "ts");
  if (phase == "X") {
    expect_time(event, "dur");
    trace.slices.push_back(event);
  } else {
    ASSERT_TRUE(phase == "s" || phase == "f") << event;
    ASSERT_TRUE(event.contains("id")) << event;
    auto& flows = phase == "s" ? trace.flow_starts : trace.flow_ends;
    EXPECT_TRUE(flows.emplace(event["id"], event).second) << event;
    if (phase == "f") {
      EXPECT_EQ(event["bp"], "e");
    }
  }
}

/// Looks through a trace as a file has it. one_clock: of ranks whose clocks are one, so that no arrow leads back.
inline Trace check_trace(const std::string& text, bool one_clock = true) {
  Trace trace;
  const json whole = json::parse(text);
  EXPECT_TRUE(whole["traceEvents"].is_array());
  for (const json& event : whole["traceEvents"]) add_event(trace, event);

  std::map<std::pair<int, int>, std::vector<json>> by_track;
  for (const json& slice : trace.slices) by_track[{slice["pid"], slice["tid"]}].push_back(slice);
  for (const auto& [track, slices] : by_track) {
    EXPECT_TRUE(trace.track_names.count(track)) << track.first << " " << track.second;
    EXPECT_TRUE(trace.process_names.count(track.first)) << track.first;
    expect_nested(slices);
  }
  EXPECT_EQ(trace.flow_starts.size(), trace.flow_ends.size());
  for (const auto& [id, start] : trace.flow_starts) {
    if (!trace.flow_ends.count(id)) {
      ADD_FAILURE() << "no end: " << start;
      continue;
    }
    const json& end = trace.flow_ends.at(id);
    EXPECT_EQ(start["name"], end["name"]);
    EXPECT_EQ(start["cat"], end["cat"]);
    if (one_clock) {
      EXPECT_LE(start["ts"], end["ts"]) << start << end;
    }
    EXPECT_TRUE(is_bound(trace, start)) << start;
    EXPECT_TRUE(is_bound(trace, end)) << end;
  }
  return trace;
}

}  // namespace sixfold::test
