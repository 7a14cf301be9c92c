#include "runtime/comm/observe/flight_report.h"

#include <algorithm>

namespace sixfold::comm {

namespace {

using Presence = RankSnapshot::Presence;

std::string presence_of(const RankSnapshot& rank, double now_s) {
  switch (rank.presence) {
    case Presence::NotStarted:
      return "has not started";
    case Presence::Left:
      return "has left " + format_seconds(now_s - rank.left_s) + " ago";
    case Presence::Gone:
      return "is gone: its process " + std::to_string(rank.process.pid) + " has ended";
    case Presence::Running:
      break;
  }
  return rank.waiting_since_s > 0 ? "waiting since " + format_seconds(now_s - rank.waiting_since_s) : "computing";
}

std::string line_of(const RankSnapshot& rank, bool awaited, double now_s) {
  std::string line = "  rank " + std::to_string(rank.rank) + ": " + presence_of(rank, now_s);
  if (awaited) line += "; HAS NOT ENTERED what is waited for";
  if (!rank.section.empty()) {
    line += "; in section '" + rank.section + "' since " + format_seconds(now_s - rank.section_since_s);
  }
  const OperationRecord* under_way = rank.under_way();
  if (under_way != nullptr) {
    line += "; under way: " + under_way->operation.describe() + ", " + under_way->state();
  } else if (rank.waiting_since_s > 0) {
    line += "; under way: an operation from before the last " + std::to_string(kRecordedOperations);
  } else {
    line += "; nothing under way";
  }
  const OperationRecord* done = rank.last_done();
  if (done == nullptr) return line + "; nothing done yet";
  return line + "; last done, " + format_seconds(now_s - done->done_s) + " ago: " + done->operation.describe();
}

}  // namespace

std::string format_report(const std::string& reason, int reporter, const std::vector<int>& awaited,
                          const std::vector<RankSnapshot>& ranks, double now_s) {
  std::string text =
      reason + "\nwhat the ranks of this host were doing, as rank " + std::to_string(reporter) + " saw it:";
  for (const RankSnapshot& rank : ranks) {
    const bool missed = std::find(awaited.begin(), awaited.end(), rank.rank) != awaited.end();
    text += "\n" + line_of(rank, missed, now_s);
  }
  return text;
}

}  // namespace sixfold::comm
