// Grid: the ranks of a call as nodes and rails. Only hierarchical builders include this.
#pragma once

#include "runtime/comm/schedule/ring_steps.h"
#include "runtime/comm/schedule/topology.h"

namespace sixfold::comm {

/// Rail i is the ranks that are i-th on their node. Throws CheckError where nodes differ in size, see
/// builder_applies().
struct Grid {
  explicit Grid(const Call& call);

  int rank_at(int of_node, int of_rail) const { return topology.ranks_of(of_node)[static_cast<size_t>(of_rail)]; }

  const Topology& topology;
  int node, rail;  // of this rank
  int num_nodes, per_node;
  Ring node_ring, rail_ring;  // the ranks of this node, and of this rail
};

}  // namespace sixfold::comm
