// LinkCarrier: the links of one group to ranks whose memory this rank does not share. The executor sees the same FIFOs
// of slots as everywhere, in memory of its own; the carrier is the other end of each, and moves slots to and from the
// peer's host. What carries them (MPI, mpi/mpi_links.h) is the World's matter.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/host/link.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

class LinkCarrier {
 public:
  virtual ~LinkCarrier() = default;
  /// A FIFO whose slots go to `peer` (a rank of the group), in order, once poll() meets them. A slot is free again when
  /// it has left. Once per peer and channel; the memory lives as long as the carrier. Both throw CommError.
  virtual LinkMemory link_to(int peer, int channel) = 0;
  /// A FIFO that poll() fills with what `peer` sends on that channel.
  virtual LinkMemory link_from(int peer, int channel) = 0;
  /// Moves what can move without blocking; true when anything did.
  virtual bool poll() = 0;
};

/// What a World makes carriers with. Owned by it.
class CarrierProvider {
 public:
  virtual ~CarrierProvider() = default;
  /// Called by all members of a group (ranks of the World, in the group's order), which wait for one another. Throws
  /// CommError.
  virtual std::unique_ptr<LinkCarrier> open(const std::vector<int>& members, const LinkOptions& options) = 0;
};

}  // namespace sixfold::comm
