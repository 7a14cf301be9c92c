#include "examples/compare_strategies/timeline.h"

#include <algorithm>
#include <map>

#include "examples/compare_strategies/record.h"

namespace sixfold::compare_strategies {

namespace {

using Intervals = std::vector<comm::Interval>;

const char* kind_name(comm::ComputeSpan::Kind kind) {
  return kRankKinds[static_cast<size_t>(kind)];
}

Intervals cut(Intervals intervals, const comm::Interval& window) {
  for (comm::Interval& interval : intervals) {
    interval.start = std::clamp(interval.start, window.start, window.end);
    interval.end = std::clamp(interval.end, window.start, window.end);
  }
  std::erase_if(intervals, [](const comm::Interval& interval) { return interval.length() <= 0; });
  return comm::union_of(intervals);
}

}  // namespace

const Track* RankTimeline::track(const std::string& kind) const {
  const auto found = std::find_if(tracks.begin(), tracks.end(), [&](const Track& track) { return track.kind == kind; });
  return found == tracks.end() ? nullptr : &*found;
}

double RankTimeline::seconds_of(const std::string& kind) const {
  const Track* found = track(kind);
  return found == nullptr ? 0 : comm::total_length(found->intervals);
}

RankTimeline timeline_of(const comm::RankRecords& records, int step, const comm::Interval& window,
                         const parallel::MeshShape& mesh) {
  std::map<std::string, Intervals> by_kind;
  for (const comm::ComputeSpan& span : records.spans) {
    const bool whole = span.unit < 0;  // those of units are within it
    if (span.step == step && whole) by_kind[kind_name(span.kind)].push_back({span.start_s, span.end_s});
  }
  for (const comm::ExposedInterval& exposed : records.exposed) {
    const double here = std::min(exposed.start_s + exposed.wait_s, exposed.end_s);
    by_kind["late"].push_back({exposed.start_s, here});
    by_kind["in the way"].push_back({here, exposed.end_s});
  }
  for (const comm::LoggedOperation& operation : records.operations) {
    const comm::LoggedRow& row = records.rows.at(operation.row);
    if (row.group_size == 1 || operation.ended_s == 0) continue;
    const double all_here = operation.started_s + std::max(operation.wait_s, 0.0);
    if (all_here < operation.ended_s) by_kind[axis_of_tag(row.tag, mesh)].push_back({all_here, operation.ended_s});
  }
  RankTimeline timeline;
  timeline.start = window.start;
  timeline.end = window.end;
  for (auto& [kind, intervals] : by_kind) {
    Track track{kind, cut(std::move(intervals), window)};
    if (!track.intervals.empty()) timeline.tracks.push_back(std::move(track));
  }
  return timeline;
}

}  // namespace sixfold::compare_strategies
