// ring: every rank talks to its two neighbours only. N ranks, S bytes of the full buffer.
//
//   ReduceScatter   block b starts at rank b + 1, collects one contribution a hop and ends at rank b
//                   N - 1 rounds, (N-1)/N S sent per rank
//   AllGather       block b starts at rank b and is passed on until all have it
//                   N - 1 rounds, (N-1)/N S sent per rank
//   AllReduce       = ReduceScatter, then AllGather of the parts: 2(N-1) rounds, 2(N-1)/N S sent per rank
//   Broadcast       a chain that starts at the root: N - 1 rounds, S sent per rank, nothing by the last
//   Reduce          a chain that ends at the root: N - 1 rounds, S sent per rank, nothing by the root
//
// A chain is a tree in which everybody has one child. It is pipelined: a slice goes on while the next one
// arrives, so a long buffer takes about the time of one hop.
//
// Neighbours are those of Topology::ring_order() where the call has a topology, so that the ring enters and leaves each
// node once; else, those by rank. Blocks are numbered by rank either way.
//
// Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009, section 4.
#include <numeric>

#include "runtime/comm/schedule/ring_steps.h"
#include "runtime/comm/schedule/topology.h"
#include "runtime/comm/schedule/tree_steps.h"

namespace sixfold::comm {

namespace {

Ring ring_of(const Call& call) {
  if (call.topology != nullptr) return {call.topology->ring_order(), call.topology->ring_position(call.rank)};
  Ring ring{std::vector<int>(static_cast<size_t>(call.size)), call.rank};
  std::iota(ring.ranks.begin(), ring.ranks.end(), 0);
  return ring;
}

BlockOf blocks_of(const Call& call, Buffer buffer) {
  return [&call, buffer](int rank) { return block(call, buffer, rank); };
}

}  // namespace

Schedule ring_reduce_scatter(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  ring_reduce_scatter(ring_of(call), blocks_of(call, Buffer::Input), whole(call, Buffer::Output), true, schedule);
  return schedule;
}

Schedule ring_all_gather(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Slice copy = own_copy(call, block(call, Buffer::Output, call.rank));
  ring_all_gather(ring_of(call), whole(call, Buffer::Input), copy, blocks_of(call, Buffer::Output), schedule);
  return schedule;
}

Schedule ring_all_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Slice own_part = block(call, Buffer::Output, call.rank);
  const Ring ring = ring_of(call);
  ring_reduce_scatter(ring, blocks_of(call, Buffer::Input), own_part, true, schedule);
  ring_all_gather(ring, own_part, {}, blocks_of(call, Buffer::Output), schedule);
  return schedule;
}

Schedule ring_broadcast(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Ring ring = ring_of(call);
  TreePlace place;
  if (call.rank != call.root) place.parent = ring.at(-1);
  if (ring.at(1) != call.root) place.children = {ring.at(1)};
  const Slice output = whole(call, Buffer::Output);
  broadcast_down(place, whole(call, Buffer::Input), output, own_copy(call, output), 0, kNoStep, schedule);
  return schedule;
}

Schedule ring_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Ring ring = ring_of(call);
  TreePlace place;
  if (call.rank != call.root) place.parent = ring.at(1);
  if (ring.at(-1) != call.root) place.children = {ring.at(-1)};
  reduce_up(place, whole(call, Buffer::Input), whole(call, Buffer::Output), 0, schedule);
  return schedule;
}

}  // namespace sixfold::comm
