#include "runtime/comm/observe/intervals.h"

#include <algorithm>
#include <limits>

namespace sixfold::comm {

std::vector<Interval> union_of(std::span<const Interval> intervals) {
  std::vector<Interval> sorted(intervals.begin(), intervals.end()), merged;
  std::sort(sorted.begin(), sorted.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  for (const Interval& interval : sorted) {
    if (!merged.empty() && interval.start <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, interval.end);
    } else {
      merged.push_back(interval);
    }
  }
  return merged;
}

std::vector<Interval> difference(std::span<const Interval> intervals, std::span<const Interval> without) {
  const std::vector<Interval> holes = union_of(without);
  std::vector<Interval> rest;
  for (Interval interval : union_of(intervals)) {
    for (const Interval& hole : holes) {
      if (hole.end <= interval.start) continue;
      if (hole.start >= interval.end) break;
      if (hole.start > interval.start) rest.push_back({interval.start, hole.start});
      interval.start = std::min(hole.end, interval.end);
    }
    if (interval.length() > 0) rest.push_back(interval);
  }
  return rest;
}

double union_length(std::span<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  double length = 0, counted_until = -std::numeric_limits<double>::infinity();
  for (const Interval& interval : intervals) {
    const double start = std::max(interval.start, counted_until);
    if (interval.end > start) length += interval.end - start;
    counted_until = std::max(counted_until, interval.end);
  }
  return length;
}

double total_length(std::span<const Interval> intervals) {
  double sum = 0;
  for (const Interval& interval : intervals) sum += interval.length();
  return sum;
}

Overlap overlap_of(std::span<const Interval> compute, std::span<const Interval> communication) {
  return {total_length(union_of(communication)), total_length(difference(communication, compute))};
}

Bandwidth bandwidth(double bytes, double seconds, double busbw_factor) {
  const double algbw = seconds > 0 ? bytes / seconds / 1e9 : 0;
  return {algbw, algbw * busbw_factor};
}

}  // namespace sixfold::comm
