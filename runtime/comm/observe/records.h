// What all ranks of a World have recorded (comm_log.h), on one rank and by one clock.
#pragma once

#include <vector>

#include "runtime/comm/observe/comm_log.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

/// What is to be added to this rank's times to make them rank 0's. Ranks of one host share a clock; between hosts, one
/// rank of each exchanges messages with rank 0, and the quickest exchange tells to within half of its time.
struct ClockOffset {
  double seconds = 0;
  double error_s = 0;  // at most; 0 on rank 0's host
};
/// Collective over the World; to be called when nothing else is under way. Throws CommError.
ClockOffset measure_clock_offset(World& world);

/// The records of all ranks on rank 0, in order of rank, moved to rank 0's clock; nothing elsewhere. The logs record
/// nothing any more. Collective over the World, all of whose ranks have a log (World::comm_log()); `offset` is this
/// rank's. Throws CommError.
std::vector<RankRecords> gather_records(World& world, const ClockOffset& offset);

}  // namespace sixfold::comm
