// Which ranks of an MPI job run on one host, so that they can share memory.
#pragma once

#include "runtime/comm/schedule/topology.h"

namespace sixfold::comm {

struct Hosts {
  /// Ranks of one node are those that reach one another's Unix sockets, and so can hand each other memory: same host
  /// name, boot and network namespace.
  Topology topology;
  /// Ranks on this machine, which share its cores: same boot, so the network namespaces of one machine count together.
  int num_on_machine = 1;
};

/// Collective over MPI_COMM_WORLD. Throws CommError.
Hosts find_hosts();

}  // namespace sixfold::comm
