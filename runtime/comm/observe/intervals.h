// Stretches of time: pure functions, for what operations that run side by side amount to.
#pragma once

#include <span>
#include <vector>

namespace sixfold::comm {

struct Interval {
  double start = 0, end = 0;  // start <= end
  double length() const { return end - start; }
  bool operator==(const Interval&) const = default;
};

/// The same moments as intervals that neither overlap nor touch, in order.
std::vector<Interval> union_of(std::span<const Interval> intervals);
/// What of `intervals` lies outside of all of `without`, in order and without overlap.
std::vector<Interval> difference(std::span<const Interval> intervals, std::span<const Interval> without);
/// Length of their union. Changes their order, and allocates nothing.
double union_length(std::span<Interval> intervals);
/// Length of the intervals, which do not overlap.
double total_length(std::span<const Interval> intervals);

/// How much communication was hidden behind compute.
struct Overlap {
  double communication = 0;  // time in which there was any
  double exposed = 0;        // of it, time without compute

  /// From 0, nothing hidden, to 1; 1 where there was no communication.
  double hidden_share() const { return communication > 0 ? 1 - exposed / communication : 1; }
};
Overlap overlap_of(std::span<const Interval> compute, std::span<const Interval> communication);

/// Algorithm and bus bandwidth in GB/s (10^9 bytes), as nccl-tests defines them: `bytes` of the full buffer over the
/// time, and that times busbw_factor(). 0 where no time has passed.
struct Bandwidth {
  double algbw = 0, busbw = 0;
};
Bandwidth bandwidth(double bytes, double seconds, double busbw_factor);

}  // namespace sixfold::comm
