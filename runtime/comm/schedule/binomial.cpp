// binomial: in each round, every rank that has the data sends them to one that has not. N ranks, S bytes.
//
//   Broadcast   ceil(log2 N) rounds, (number of children) S sent per rank, ceil(log2 N) S by the root
//   Reduce      the same tree upwards: ceil(log2 N) rounds, S sent per rank, nothing by the root
//
// The rank at position p after the root hangs below the position that p is without its lowest one bit. Its children are
// p + 1, p + 2, p + 4, ... below that bit; the one with the largest subtree is sent to first and received from last.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005,
// section 4 (Broadcast, Reduce and Allreduce).
#include <algorithm>

#include "runtime/comm/schedule/tree_steps.h"

namespace sixfold::comm {

namespace {

/// Children in the order of their subtrees, the smallest first.
TreePlace place_in_tree(const Call& call) {
  const int position = (call.rank - call.root + call.size) % call.size;
  const auto rank_at = [&](int p) { return (p + call.root) % call.size; };
  TreePlace place;
  if (position > 0) place.parent = rank_at(position & (position - 1));
  for (int bit = 1; position + bit < call.size && (position & bit) == 0; bit *= 2) {
    place.children.push_back(rank_at(position + bit));
  }
  return place;
}

}  // namespace

Schedule binomial_broadcast(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  TreePlace place = place_in_tree(call);
  std::reverse(place.children.begin(), place.children.end());
  const Slice output = whole(call, Buffer::Output);
  broadcast_down(place, whole(call, Buffer::Input), output, own_copy(call, output), 0, kNoStep, schedule);
  return schedule;
}

Schedule binomial_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  reduce_up(place_in_tree(call), whole(call, Buffer::Input), whole(call, Buffer::Output), 0, schedule);
  return schedule;
}

}  // namespace sixfold::comm
