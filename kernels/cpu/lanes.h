// Reductions over a row, in an order that depends on the length only.
#pragma once

#include <cstdint>

namespace sixfold::kernels {

/// Lane l of a reduction takes elements l, l + kLanes, ...: two registers of AVX2, one of AVX-512.
inline constexpr int64_t kLanes = 16;

/// combine(...) over value(i), i in [0, n), starting from `start` in every lane.
template <typename T, typename Value, typename Combine>
T lane_reduce(int64_t n, T start, Value&& value, Combine&& combine) {
  T lanes[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = start;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = combine(lanes[l], value(i + l));
  for (int64_t l = 0; i + l < n; ++l) lanes[l] = combine(lanes[l], value(i + l));
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) lanes[l] = combine(lanes[l], lanes[l + width]);
  return lanes[0];
}

template <typename T = float, typename Value>
T lane_sum(int64_t n, Value&& value) {
  return lane_reduce(n, T{0}, value, [](T a, T b) { return a + b; });
}

}  // namespace sixfold::kernels
