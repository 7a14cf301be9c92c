// tree: a binary tree in heap order over the ranks, rotated so that the root is at its top. N ranks, S bytes.
//
//   Reduce      up: a rank adds what its children send to its own and sends the sum to its parent
//               at most 2 floor(log2 N) rounds, S sent per rank, nothing by the root
//   Broadcast   down: a rank passes on to its children what comes from its parent
//               at most 2 floor(log2 N) rounds, (number of children) S sent per rank
//   AllReduce   = Reduce to rank 0, then Broadcast: at most 4 floor(log2 N) rounds, at most 3 S sent per rank
//
// AllReduce goes up on channel 0 and down on channel 1, so that a slice is on its way down while later ones still go
// up; the two meet at the top only, where a slice must be finished before it is sent down. Elsewhere the data sees to
// it: a slice comes down only after this rank has sent its share of it up, hence read its Input (which matters in
// place).
#include "runtime/comm/schedule/tree_steps.h"

namespace sixfold::comm {

namespace {

constexpr int kUp = 0, kDown = 1;

TreePlace place_in_tree(const Call& call, int top) {
  const int position = (call.rank - top + call.size) % call.size;
  const auto rank_at = [&](int p) { return (p + top) % call.size; };
  TreePlace place;
  if (position > 0) place.parent = rank_at((position - 1) / 2);
  for (int child = 2 * position + 1; child <= 2 * position + 2 && child < call.size; ++child) {
    place.children.push_back(rank_at(child));
  }
  return place;
}

}  // namespace

Schedule tree_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  reduce_up(place_in_tree(call, call.root), whole(call, Buffer::Input), whole(call, Buffer::Output), kUp, schedule);
  return schedule;
}

Schedule tree_broadcast(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Slice output = whole(call, Buffer::Output);
  broadcast_down(place_in_tree(call, call.root), whole(call, Buffer::Input), output, own_copy(call, output), 0, kNoStep,
                 schedule);
  return schedule;
}

Schedule tree_all_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  schedule.num_channels = 2;
  const TreePlace place = place_in_tree(call, 0);
  const Slice output = whole(call, Buffer::Output);
  reduce_up(place, whole(call, Buffer::Input), output, kUp, schedule);
  const int finished = static_cast<int>(schedule.steps.size()) - 1;
  broadcast_down(place, output, output, {}, kDown, finished, schedule);
  return schedule;
}

}  // namespace sixfold::comm
