// hierarchical AllToAll: few large messages between nodes instead of many small ones. M nodes of n ranks, N = M n
// ranks, S bytes of a rank's whole Input; rail i is the ranks that are i-th on their node.
//
//   inside the node   each rank hands its mate on rail i what it has for the ranks of rail i on all nodes: M blocks to
//                     each of n - 1 mates; M(n-1)/N S sent inside the node
//   along the rail    each rank sends the rank of its rail on each other node what the ranks of this node have for it:
//                     n blocks in one message; (M-1) n/N S sent between nodes
//
// N - 1 rounds like pairwise, of which M - 1 instead of (M-1) n go between nodes, with the same bytes there. They hold
// where the links hold n blocks of the pass and node-mates are neighbours by rank; else every block goes alone.
//
// Blocks wait for the rail in Scratch, where those of one message lie side by side: place m n + j has what mate j sends
// to this rail's rank on node m. All of Input has been sent or put there before the first block comes in, which is what
// makes the exchange right in place.
//
// Source: Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems",
// 1997 (index: the same exchange by digits, here those of node and rail).
#include "runtime/comm/schedule/grid.h"

namespace sixfold::comm {

namespace {

Slice places(const Call& call, const Grid& grid, int node, const BlockRun& mates) {
  const size_t first = static_cast<size_t>(node * grid.per_node + mates.begin);
  const size_t num_blocks = static_cast<size_t>(mates.end - mates.begin);
  return Slice::of(Buffer::Scratch, first * call.pass_count, num_blocks * call.pass_count);
}
Slice place(const Call& call, const Grid& grid, int node, int mate) {
  return places(call, grid, node, {mate, mate + 1});
}

void exchange_inside(const Call& call, const Grid& grid, Schedule& schedule) {
  for (int node = 0; node < grid.num_nodes; ++node) {
    const int peer = grid.rank_at(node, grid.rail);
    if (peer == call.rank) continue;
    schedule.steps.push_back({.src = block(call, Buffer::Input, peer), .dst = place(call, grid, node, grid.rail)});
  }
  for (int k = 1; k < grid.per_node; ++k) {
    const int to = grid.node_ring.at(k), from = grid.node_ring.at(-k);
    std::vector<Step> sends, receives;
    for (int node = 0; node < grid.num_nodes; ++node) {
      const int receiver = grid.rank_at(node, grid.topology.rail_of(to));
      sends.push_back({.send_peer = to, .src = block(call, Buffer::Input, receiver)});
      receives.push_back({.recv_peer = from, .dst = place(call, grid, node, grid.topology.rail_of(from))});
    }
    append_exchange(schedule, sends, receives);
  }
}

/// The blocks that the ranks of `sender` (a node) have for one rank: the runs in which they go, by mate. Together where
/// they lie side by side in the receiver's Output.
std::vector<BlockRun> runs_from(const Call& call, const Grid& grid, int sender) {
  Call limited = call;
  const bool neighbours = grid.rank_at(sender, grid.per_node - 1) - grid.rank_at(sender, 0) == grid.per_node - 1;
  if (!neighbours || call.pass_count != call.count) limited.step_capacity = 0;
  return block_runs(limited, 0, grid.per_node, [&](int) { return call.pass_count; });
}

void exchange_along_rail(const Call& call, const Grid& grid, Schedule& schedule) {
  for (int k = 1; k < grid.num_nodes; ++k) {
    const int to = grid.rail_ring.at(k), from = grid.rail_ring.at(-k);
    const int to_node = grid.topology.node_of(to), from_node = grid.topology.node_of(from);
    std::vector<Step> sends, receives;
    for (const BlockRun& run : runs_from(call, grid, grid.node)) {
      sends.push_back({.send_peer = to, .src = places(call, grid, to_node, run)});
    }
    for (const BlockRun& run : runs_from(call, grid, from_node)) {
      const int first = grid.rank_at(from_node, run.begin);
      const Slice landing = blocks(call, Buffer::Output, first, first + run.end - run.begin);
      receives.push_back({.recv_peer = from, .dst = landing});
    }
    append_exchange(schedule, sends, receives);
  }
}

}  // namespace

Schedule hierarchical_all_to_all(const Call& call) {
  const Grid grid(call);
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  schedule.scratch_count = static_cast<size_t>(call.size) * call.pass_count;
  exchange_inside(call, grid, schedule);
  exchange_along_rail(call, grid, schedule);
  for (int mate = 0; mate < grid.per_node; ++mate) {
    if (mate == grid.rail) continue;
    const Slice output = block(call, Buffer::Output, grid.rank_at(grid.node, mate));
    schedule.steps.push_back({.src = place(call, grid, grid.node, mate), .dst = output});
  }
  const Slice copy = own_copy(call, block(call, Buffer::Output, call.rank));
  if (copy.used) schedule.steps.push_back({.src = block(call, Buffer::Input, call.rank), .dst = copy});
  return schedule;
}

}  // namespace sixfold::comm
