#include "runtime/comm/schedule/grid.h"

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {
const Topology& checked_topology(const Call& call) {
  SIXFOLD_CHECK(builder_applies(call.primitive, Algorithm::Hierarchical, call.topology),
                "hierarchical needs nodes of the same size");
  return *call.topology;
}
}  // namespace

Grid::Grid(const Call& call)
    : topology(checked_topology(call)),
      node(topology.node_of(call.rank)),
      rail(topology.rail_of(call.rank)),
      num_nodes(topology.num_nodes()),
      per_node(topology.ranks_per_node()),
      node_ring{topology.ranks_of(node), rail} {
  for (int other = 0; other < num_nodes; ++other) rail_ring.ranks.push_back(rank_at(other, rail));
  rail_ring.position = node;
}

}  // namespace sixfold::comm
