#include "runtime/comm/host/pacer.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace sixfold::comm {

namespace {

/// Reserves a port for `duration` from `earliest` on, or from when it is free; returns the start.
uint64_t reserve(std::atomic<uint64_t>& free_at, uint64_t earliest, uint64_t duration) {
  uint64_t seen = free_at.load(std::memory_order_relaxed), start = 0;
  do {
    start = std::max(seen, earliest);
  } while (!free_at.compare_exchange_weak(seen, start + duration, std::memory_order_relaxed));
  return start;
}

size_t num_ports(const Topology& topology, int num_rails) {
  return 2 * static_cast<size_t>(topology.size() + topology.num_nodes() * num_rails);
}

}  // namespace

Pacer::Pacer(RegionProvider& regions, const Topology& topology, const Profile& rates)
    : topology_(topology), rates_(rates) {
  std::vector<int> members(static_cast<size_t>(topology.size()));
  std::iota(members.begin(), members.end(), 0);
  const size_t bytes = num_ports(topology, rates.num_rails) * sizeof(Port);
  region_ = members.size() == 1 ? SharedRegion::anonymous(bytes) : regions.open("ports", bytes, members);
}

Pacer::Port& Pacer::port(int rank, LinkClass link_class, bool egress) const {
  const int card = topology_.node_of(rank) * rates_.num_rails + topology_.rail_of(rank) % rates_.num_rails;
  const int index = link_class == LinkClass::Intra ? rank : topology_.size() + card;
  return reinterpret_cast<Port*>(region_->data())[2 * index + (egress ? 0 : 1)];
}

uint64_t Pacer::send(int from, int to, size_t bytes) {
  const LinkClass link_class = topology_.link(from, to);
  const LinkRate& rate = rates_.link(link_class);
  const auto duration = static_cast<uint64_t>(static_cast<double>(bytes) / rate.bytes_per_s * 1e9);
  const uint64_t left = reserve(port(from, link_class, true).free_at, monotonic_ns(), duration);
  return reserve(port(to, link_class, false).free_at, left, duration) + duration;
}

uint64_t monotonic_ns() {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count());
}

}  // namespace sixfold::comm
