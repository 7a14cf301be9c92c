// Tables of algorithms from the cost model: for each primitive, the cheapest algorithm at each of a ladder of sizes.
#pragma once

#include <vector>

#include "runtime/comm/schedule/cost.h"
#include "runtime/comm/schedule/select.h"

namespace sixfold::comm {

/// The ladder: powers of two from 8 B to 256 MiB. An operation is priced as the next larger step.
inline constexpr size_t kSmallestPricedBytes = 8;
inline constexpr size_t kLargestPricedBytes = size_t{256} << 20;

/// Prices all algorithms among `candidates` (empty: all there are) for groups such as `topology`, on elements of 4
/// bytes: small operations by simulation, others by closed form. Depends on its arguments alone, so all ranks that call
/// it get the same table. Takes about 5 ms for 8 ranks. Nodes of unequal size are priced as if all were as large as
/// the largest. CheckError where no candidate exists for some primitive, or `profile` makes no sense.
SelectTable make_select_table(const Profile& profile, const Topology& topology, const LinkShape& links,
                              const std::vector<Algorithm>& candidates = {});

}  // namespace sixfold::comm
