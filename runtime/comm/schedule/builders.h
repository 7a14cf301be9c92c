// The builders, and the few slices that they all speak of. Only schedule.cpp and the builders include this.
//
// Each builder writes the steps of one pass for one rank; find_builder() maps (primitive, algorithm) to them.
#pragma once

#include <functional>

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

Schedule ring_all_reduce(const Call& call);
Schedule ring_reduce_scatter(const Call& call);
Schedule ring_all_gather(const Call& call);
Schedule ring_broadcast(const Call& call);
Schedule ring_reduce(const Call& call);

Schedule tree_all_reduce(const Call& call);
Schedule tree_broadcast(const Call& call);
Schedule tree_reduce(const Call& call);

Schedule direct_all_reduce(const Call& call);
Schedule direct_reduce_scatter(const Call& call);
Schedule direct_all_gather(const Call& call);
Schedule direct_broadcast(const Call& call);
Schedule direct_reduce(const Call& call);

Schedule pairwise_all_to_all(const Call& call);
Schedule spread_out_all_to_all(const Call& call);

Schedule binomial_broadcast(const Call& call);
Schedule binomial_reduce(const Call& call);

Schedule double_tree_all_reduce(const Call& call);
Schedule double_tree_broadcast(const Call& call);
Schedule double_tree_reduce(const Call& call);

Schedule recursive_doubling_all_reduce(const Call& call);
Schedule recursive_doubling_all_gather(const Call& call);

Schedule halving_doubling_all_reduce(const Call& call);
Schedule halving_doubling_reduce_scatter(const Call& call);
Schedule halving_doubling_all_gather(const Call& call);

Schedule hierarchical_all_reduce(const Call& call);
Schedule hierarchical_reduce_scatter(const Call& call);
Schedule hierarchical_all_gather(const Call& call);
Schedule hierarchical_broadcast(const Call& call);
Schedule hierarchical_reduce(const Call& call);
Schedule hierarchical_all_to_all(const Call& call);

/// The rank `distance` places after (before, where negative) `rank`, around the group. |distance| <= size.
inline int neighbour(const Call& call, int distance) {
  return (call.rank + distance + call.size) % call.size;
}

/// The pass of a buffer that is not cut into blocks, or that holds this rank's block only.
Slice whole(const Call& call, Buffer buffer);

/// The pass of block `index` of a buffer that holds a block for each rank. AllReduce has no blocks: there it is part
/// `index` of the pass. Scratch and Accum hold the pass of all blocks side by side.
Slice block(const Call& call, Buffer buffer, int index);

/// The pass of blocks [begin, end), which lie side by side: one block, or a pass that covers blocks in full.
Slice blocks(const Call& call, Buffer buffer, int begin, int end);

/// Neighbouring blocks that travel in one step.
struct BlockRun {
  int begin = 0, end = 0;
};
/// Blocks [begin, end) cut into runs of at most Call::step_capacity elements, but at least one block each.
std::vector<BlockRun> block_runs(const Call& call, int begin, int end, const std::function<size_t(int)>& count_of);
/// The same for blocks of AllGather's Output or ReduceScatter's Input, which only lie side by side where the pass
/// covers them in full; else each goes alone. Alike on all ranks.
std::vector<BlockRun> block_runs(const Call& call, int begin, int end);

/// Where a rank that sends its Input keeps a copy of it: nowhere in place, where `destination` is that very memory.
inline Slice own_copy(const Call& call, Slice destination) {
  return call.in_place ? Slice{} : destination;
}

/// The schedule of a group of one.
Schedule single_rank(const Call& call);

/// Appends `step`, which sends its src; where the last step has just written that slice and sends nothing, it sends it
/// on as `step` would, so that the slice is not read from memory again.
void append_send(Schedule& schedule, const Step& step);

/// Appends sends and receives in turn, so that neither side sends more ahead than the links hold.
void append_exchange(Schedule& schedule, const std::vector<Step>& sends, const std::vector<Step>& receives);

}  // namespace sixfold::comm
