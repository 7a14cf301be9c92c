// Closed formulas of what a rank sends, written without looking at the builders, so that the bytes counted in the links
// have something independent to be compared with.
#pragma once

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// Elements that call.rank sends for one collective (pass fields and in_place are ignored).
///
/// S is the full buffer: `count` elements for Broadcast, Reduce and AllReduce, all blocks together otherwise.
///   Reduce          S, the root 0, whatever the algorithm
///   Broadcast       ring S, the last of the chain 0; tree, binomial: children S; double_tree: S by the root, children
///   in
///                   both trees S/2; direct: (N-1) S by the root; hierarchical: successors in both chains S
///   AllReduce       ring 2(N-1)/N S; tree (children + has parent) S; double_tree half of that for both trees;
///                   direct two-shot 2(N-1)/N S, one-shot (N-1) S; recursive_doubling k S and halving_doubling 2(P-1)/P
///                   S for P = 2^k active ranks, S more with a surplus partner, S by a surplus rank; hierarchical
///                   2(n-1)/n S + 2(M-1)/M S/n for M nodes of n ranks
///   AllGather       all blocks but one: the next rank's (ring), one's own (direct: that one N-1 times), those of the
///   ReduceScatter   rounds (recursive_doubling, halving_doubling), of rail and node (hierarchical)
///   AllToAll        all blocks but one's own; hierarchical: M(n-1) blocks inside the node, (M-1) n between nodes
/// Exact per rank, with or without call.counts; where an AllReduce cuts a buffer into parts that are not equal
/// (double_tree 2; halving_doubling P; hierarchical n, then M; ring and direct N, if it goes in several passes), exact
/// in the sum over the ranks.
///
/// Throws CheckError where the algorithm does not apply to the primitive and call.topology. Source: Thakur,
/// Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005; Patarasuk, Yuan,
/// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009; Sanders, Speck, Traeff, "Two-tree
/// algorithms for full bandwidth broadcast, reduction and scan", 2009.
double predicted_sent_elements(Algorithm algorithm, const Call& call);

}  // namespace sixfold::comm
