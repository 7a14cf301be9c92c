// double_tree: two binary trees, each of which carries half of the pass. No rank is inside both (has children in both),
// so every rank can use its whole bandwidth, which the leaves of a single tree do not. N ranks, S bytes.
//
//   Broadcast   the root sends one half to the top of each tree: S sent by the root, at most S per rank
//   Reduce      the same upwards: S sent per rank, nothing by the root
//               for both, trees over the N - 1 others, at most 2 floor(log2 N) + 2 rounds
//   AllReduce   trees over all N ranks, up and then down: at most 2 S sent per rank
//               at most 4 floor(log2 N) rounds
//
// Each tree runs on channels of its own, AllReduce on one up and one down for each tree, four in all; in each, slices
// follow one another as in `tree`.
//
// A tree has its ranks in order (left subtree < rank < right subtree) at positions 1 .. n, so that odd positions are
// leaves. The second tree is the first one mirrored where n is even, and moved on by one where n is odd (so that
// position 1 plays n, a leaf): in both cases the ranks inside it are those at odd positions.
//
// Source: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
#include <bit>

#include "runtime/comm/schedule/tree_steps.h"

namespace sixfold::comm {

namespace {

constexpr int kNumTrees = 2;

/// The place at position `role` of an in-order tree over 1 .. n, in positions; parent 0 at the top.
TreePlace place_in_order(int role, int n) {
  const int bit = role & -role;  // a position with lowest one bit b has its children at -b/2 and +b/2, where there are
  TreePlace place;
  place.parent = 0;
  if (role != static_cast<int>(std::bit_floor(static_cast<unsigned>(n)))) {
    place.parent = (role ^ bit) | (2 * bit);
    // Beyond the end there is nobody: the next ancestor that exists.
    while (place.parent > n) {
      const int above = place.parent & -place.parent;
      place.parent = (place.parent ^ above) | (2 * above);
    }
  }
  if (bit > 1) place.children.push_back(role - bit / 2);
  for (int right = bit / 2; right > 0; right /= 2) {
    if (role + right > n) continue;
    place.children.push_back(role + right);
    break;
  }
  return place;
}

/// The place at position `position` of tree `tree` over 1 .. n, in positions; parent 0 at the top.
TreePlace place_in_tree(int tree, int position, int n) {
  if (tree == 0) return place_in_order(position, n);
  // Mirrored, or moved on by one: both are their own way of counting, and back again.
  const auto role_of = [n](int p) { return n % 2 == 0 ? n + 1 - p : (p == 1 ? n : p - 1); };
  const auto position_of = [n](int r) { return n % 2 == 0 ? n + 1 - r : (r == n ? 1 : r + 1); };
  TreePlace place = place_in_order(role_of(position), n);
  if (place.parent != 0) place.parent = position_of(place.parent);
  for (int& child : place.children) child = position_of(child);
  return place;
}

/// In tree `tree` over all ranks but the root, which is above the top of both.
TreePlace place_below_root(const Call& call, int tree) {
  const int n = call.size - 1, position = (call.rank - call.root + call.size) % call.size;
  const auto rank_at = [&](int p) { return (p + call.root) % call.size; };
  TreePlace place;
  if (position == 0) {
    int top = 1;
    while (place_in_tree(tree, top, n).parent != 0) ++top;
    place.children.push_back(rank_at(top));
    return place;
  }
  place = place_in_tree(tree, position, n);
  place.parent = rank_at(place.parent);  // of the top: position 0, the root
  for (int& child : place.children) child = rank_at(child);
  return place;
}

/// In tree `tree` over all ranks.
TreePlace place_among_all(const Call& call, int tree) {
  TreePlace place = place_in_tree(tree, call.rank + 1, call.size);
  --place.parent;  // position 0, above the top, becomes kNoPeer
  for (int& child : place.children) --child;
  return place;
}

/// What tree `tree` carries.
Slice half(const Call& call, Buffer buffer, int tree) {
  const Range range = part_of(call.pass_count, kNumTrees, tree);
  return Slice::of(buffer, call.pass_offset + range.begin, range.count());
}

}  // namespace

Schedule double_tree_broadcast(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  schedule.num_channels = kNumTrees;
  for (int tree = 0; tree < kNumTrees; ++tree) {
    const Slice output = half(call, Buffer::Output, tree);
    broadcast_down(place_below_root(call, tree), half(call, Buffer::Input, tree), output, own_copy(call, output), tree,
                   kNoStep, schedule);
  }
  return schedule;
}

Schedule double_tree_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  schedule.num_channels = kNumTrees;
  for (int tree = 0; tree < kNumTrees; ++tree) {
    reduce_up(place_below_root(call, tree), half(call, Buffer::Input, tree), half(call, Buffer::Output, tree), tree,
              schedule);
  }
  return schedule;
}

Schedule double_tree_all_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  schedule.num_channels = 2 * kNumTrees;
  for (int tree = 0; tree < kNumTrees; ++tree) {
    const TreePlace place = place_among_all(call, tree);
    const Slice output = half(call, Buffer::Output, tree);
    reduce_up(place, half(call, Buffer::Input, tree), output, tree, schedule);
    const int finished = static_cast<int>(schedule.steps.size()) - 1;
    broadcast_down(place, output, output, {}, kNumTrees + tree, finished, schedule);
  }
  return schedule;
}

}  // namespace sixfold::comm
