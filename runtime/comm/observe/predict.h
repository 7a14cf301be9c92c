// Closed formulas of what a rank sends, written without looking at the builders, so that the bytes counted in the links
// have something independent to be compared with.
#pragma once

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// Elements that `rank` sends for one collective on `count` elements (as in Call). Exact per rank where the formula
/// says so; where an algorithm cuts a buffer into `size` parts that are not equal, exact in the sum over the ranks.
///   ring    AllReduce 2(N-1)/N S; ReduceScatter, AllGather (N-1)/N S; Broadcast, Reduce: S, the last of the chain 0
///   tree    AllReduce (children + has parent) S; Broadcast children S; Reduce: S, the root 0
///   direct  AllReduce two-shot 2(N-1)/N S, one-shot (N-1) S; ReduceScatter, AllGather (N-1)/N S; Broadcast root (N-1)
///   S;
///           Reduce: S, the root 0
///   pairwise AllToAll (N-1)/N S
/// S is the full buffer: `count` elements for Broadcast, Reduce and AllReduce, size * count otherwise. Throws
/// CheckError where the algorithm does not exist for the primitive. Source: Thakur, Rabenseifner, Gropp, "Optimization
/// of collective communication operations in MPICH", 2005; Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms
/// for clusters of workstations", 2009.
double predicted_sent_elements(Primitive primitive, Algorithm algorithm, int rank, int size, int root, size_t count);

}  // namespace sixfold::comm
