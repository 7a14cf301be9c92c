// hierarchical, all but AllToAll: what crosses nodes is first made small, or is sent once a node. M nodes of n ranks, N
// = M n ranks, S bytes of the full buffer; rail i is the ranks that are i-th on their node.
//
//   AllReduce      ReduceScatter inside the node, so that each rank has the node's sum of one part of n; AllReduce of
//                  that part along the rail; AllGather inside the node
//                  2(n-1) + 2(M-1) rounds; sent per rank: 2(n-1)/n S inside the node, 2(M-1)/M S/n between nodes
//   ReduceScatter  for each node, ReduceScatter inside this one of the blocks of that one; ReduceScatter of the M sums
//                  that a rank then has along the rail
//                  M(n-1) + M - 1 rounds; sent per rank: M(n-1)/N S inside the node, (M-1)/N S between nodes
//   AllGather      the same backwards, and the same numbers
//   Broadcast      a chain from the root through its rail, from each rank of which a chain goes through its node
//                  at most M + n - 2 rounds; S enters each other node once; at most 2 S sent per rank
//   Reduce         the same upwards: at most M + n - 2 rounds; S leaves each other node once; S sent per rank
//
// Inside the node and along the rail all phases run on rings. The sums of a ReduceScatter wait for the rail in Accum.
// An AllReduce in place or not keeps them in Output.
//
// Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019.
#include "runtime/comm/schedule/grid.h"
#include "runtime/comm/schedule/tree_steps.h"

namespace sixfold::comm {

namespace {

/// Part `index` of `count` parts of a slice.
Slice part_of_slice(const Slice& slice, int count, int index) {
  const Range part = part_of(slice.count, count, index);
  return Slice::of(slice.buffer, slice.offset + part.begin, part.count());
}

/// Broadcast: from whom the pass comes and to whom it goes, along the rail of the root and from there through the
/// nodes.
TreePlace place_in_chains(const Call& call, const Grid& grid) {
  const int root_node = grid.topology.node_of(call.root), root_rail = grid.topology.rail_of(call.root);
  const int node_distance = (grid.node - root_node + grid.num_nodes) % grid.num_nodes;
  const int distance = (grid.rail - root_rail + grid.per_node) % grid.per_node;  // from the root's rail
  TreePlace place;
  if (distance > 0) {
    place.parent = grid.node_ring.at(-1);
  } else if (node_distance > 0) {
    place.parent = grid.rail_ring.at(-1);
  }
  if (distance == 0 && node_distance + 1 < grid.num_nodes) place.children.push_back(grid.rail_ring.at(1));
  if (distance + 1 < grid.per_node) place.children.push_back(grid.node_ring.at(1));
  return place;
}

}  // namespace

Schedule hierarchical_all_reduce(const Call& call) {
  const Grid grid(call);
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const auto part_in = [&](Buffer buffer, int rail) { return part_of_slice(whole(call, buffer), grid.per_node, rail); };
  const auto node_part = [&](Buffer buffer) {
    return [&, buffer](int rank) { return part_in(buffer, grid.topology.rail_of(rank)); };
  };
  const auto rail_part = [&](Buffer buffer) {
    return [&, buffer](int rank) {
      return part_of_slice(part_in(buffer, grid.rail), grid.num_nodes, grid.topology.node_of(rank));
    };
  };
  const bool crosses = grid.num_nodes > 1;
  const Slice own_part = part_in(Buffer::Output, grid.rail);
  Buffer sums = Buffer::Input;
  if (grid.per_node > 1) {
    ring_reduce_scatter(grid.node_ring, node_part(Buffer::Input), own_part, !crosses, schedule);
    sums = Buffer::Output;
  }
  if (crosses) {
    const Slice own = rail_part(Buffer::Output)(call.rank);
    ring_reduce_scatter(grid.rail_ring, rail_part(sums), own, true, schedule);
    ring_all_gather(grid.rail_ring, own, {}, rail_part(Buffer::Output), schedule);
  }
  if (grid.per_node > 1) ring_all_gather(grid.node_ring, own_part, {}, node_part(Buffer::Output), schedule);
  return schedule;
}

Schedule hierarchical_reduce_scatter(const Call& call) {
  const Grid grid(call);
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const BlockOf input = [&](int rank) { return block(call, Buffer::Input, rank); };
  const Slice output = whole(call, Buffer::Output);
  if (grid.num_nodes == 1) {
    ring_reduce_scatter(grid.node_ring, input, output, true, schedule);
    return schedule;
  }
  if (grid.per_node == 1) {
    ring_reduce_scatter(grid.rail_ring, input, output, true, schedule);
    return schedule;
  }
  const BlockOf node_sum = [&](int rank) {
    const size_t offset = static_cast<size_t>(grid.topology.node_of(rank)) * call.pass_count;
    return Slice::of(Buffer::Accum, offset, input(rank).count);
  };
  schedule.accum_count = static_cast<size_t>(grid.num_nodes) * call.pass_count;
  for (int node = 0; node < grid.num_nodes; ++node) {
    // A mate stands for the rank of that node that is on its rail.
    const BlockOf of_node = [&](int mate) { return input(grid.rank_at(node, grid.topology.rail_of(mate))); };
    ring_reduce_scatter(grid.node_ring, of_node, node_sum(grid.rank_at(node, grid.rail)), false, schedule);
  }
  ring_reduce_scatter(grid.rail_ring, node_sum, output, true, schedule);
  return schedule;
}

Schedule hierarchical_all_gather(const Call& call) {
  const Grid grid(call);
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const BlockOf output = [&](int rank) { return block(call, Buffer::Output, rank); };
  Slice own = whole(call, Buffer::Input), copy = own_copy(call, output(call.rank));
  if (grid.num_nodes > 1) {
    ring_all_gather(grid.rail_ring, own, copy, output, schedule);
    copy = {};
  }
  if (grid.per_node == 1) return schedule;
  for (int node = 0; node < grid.num_nodes; ++node) {
    const BlockOf of_node = [&](int mate) { return output(grid.rank_at(node, grid.topology.rail_of(mate))); };
    if (grid.num_nodes > 1) own = of_node(call.rank);
    ring_all_gather(grid.node_ring, own, copy, of_node, schedule);
  }
  return schedule;
}

Schedule hierarchical_broadcast(const Call& call) {
  const Grid grid(call);
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Slice output = whole(call, Buffer::Output);
  broadcast_down(place_in_chains(call, grid), whole(call, Buffer::Input), output, own_copy(call, output), 0, kNoStep,
                 schedule);
  return schedule;
}

Schedule hierarchical_reduce(const Call& call) {
  const Grid grid(call);
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  reduce_up(place_in_chains(call, grid), whole(call, Buffer::Input), whole(call, Buffer::Output), 0, schedule);
  return schedule;
}

}  // namespace sixfold::comm
