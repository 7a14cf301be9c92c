// Timeline of one step on one rank: what it computed, when communication was in the way, and when data moved. Pure.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/comm/observe/comm_log.h"
#include "runtime/comm/observe/intervals.h"
#include "runtime/parallel/mesh.h"

namespace sixfold::compare_strategies {

/// Stretches of time of one kind; in order, without overlap.
struct Track {
  std::string kind;
  std::vector<comm::Interval> intervals;
};

/// Kinds of compute and of waiting, of which a rank does one at a time, and the axes whose messages may move meanwhile.
/// "in the way": the rank stood still while data moved; "late": while it waited for another rank to come.
inline constexpr std::array<const char*, 5> kRankKinds = {"forward", "backward", "optimizer", "in the way", "late"};
inline constexpr std::array<const char*, 6> kAxisKinds = {"tp", "sp", "dp", "dp x sp", "hsdp", "pp"};

struct RankTimeline {
  std::vector<Track> tracks;  // of kRankKinds and kAxisKinds, those that there are
  double start = 0, end = 0;  // of the step; as all times in seconds of the clock of `records`

  /// nullptr: there is nothing of this kind.
  const Track* track(const std::string& kind) const;
  double seconds_of(const std::string& kind) const;
};

/// Of `step`, from 1, whose window is one of step_windows() (step_figures.h). An operation moves data from the moment
/// when the last rank that it needs has come until it ends; those of other steps that run on into this one are drawn,
/// too.
RankTimeline timeline_of(const comm::RankRecords& records, int step, const comm::Interval& window,
                         const parallel::MeshShape& mesh);

}  // namespace sixfold::compare_strategies
