// Pacer: makes the host's links as slow as those of another machine, so that the gap between links inside a node and
// between nodes can be seen on a machine that has neither (--emulate-links).
//
// Each rank has an intra egress and an intra ingress port, each node an inter egress and an inter ingress port (one for
// each rail, where the profile has several), as in the simulation (schedule/cost.h). A port carries one slice at a
// time: it is a clock, in shared memory, that says when it is free. Whoever sends a slice moves the clocks of both
// ports on by its bytes / rate, and the receiver may not see it before then.
#pragma once

#include <atomic>

#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/schedule/profile.h"

namespace sixfold::comm {

class Pacer {
 public:
  /// Collective over the World: `topology` is that of all its ranks.
  Pacer(RegionProvider& regions, const Topology& topology, const Profile& rates);

  /// Sends `bytes` from one rank of the World to another: when they will have arrived, in nanoseconds of
  /// monotonic_ns().
  uint64_t send(int from, int to, size_t bytes);

 private:
  struct alignas(64) Port {
    std::atomic<uint64_t> free_at;
  };
  Port& port(int rank, LinkClass link_class, bool egress) const;

  Topology topology_;
  Profile rates_;
  std::shared_ptr<SharedRegion> region_;
};

/// Nanoseconds of a clock that all processes of the host share.
uint64_t monotonic_ns();

}  // namespace sixfold::comm
