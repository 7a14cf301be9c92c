#include "runtime/parallel/shard_groups.h"

namespace sixfold::parallel {

ShardGroups::ShardGroups(comm::Communicator& group, bool hybrid) : all_(group) {
  if (!hybrid) return;
  const comm::Topology& topology = group.topology();
  node_ = group.split(topology.node_of(group.rank()), group.rank());
  rail_ = group.split(topology.rail_of(group.rank()), group.rank());
}

}  // namespace sixfold::parallel
