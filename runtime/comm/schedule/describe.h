// What a group looks like to its algorithms, as text for --debug and --explain.
#pragma once

#include <functional>
#include <string>

#include "runtime/comm/schedule/schedule.h"
#include "runtime/comm/schedule/topology.h"

namespace sixfold::comm {

/// One line each: the nodes, the ring, and the trees as "rank < parent".
///
///   nodes    2 nodes: 0 1 | 2 3
///   ring     0 > 1 > 2 > 3 > 0
///   tree     1 < 0, 2 < 0, 3 < 1
std::string describe_group(const Topology& topology);

/// The messages of one pass by rounds (see rounds.h), after the steps of rank 0:
///
///   round 1   0 > 1  Output[0,16)   ...
std::string describe_schedule(const Call& call, const std::function<Schedule(const Call&)>& builder);

}  // namespace sixfold::comm
