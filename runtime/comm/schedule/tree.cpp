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
#include "runtime/comm/schedule/builders.h"

namespace sixfold::comm {

namespace {

constexpr int kUp = 0, kDown = 1;

struct TreePlace {
  int parent = kNoPeer;  // none at the top
  std::vector<int> children;
};

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

/// Sums up; at the top the last step leaves the result, finished, in Output.
void reduce_up(const Call& call, const TreePlace& place, Schedule& schedule) {
  Slice sum = whole(call, Buffer::Input);
  // In an all-reduce in place, what overwrites the Input of a leaf comes down after its parent has added it.
  if (place.children.empty()) {
    schedule.steps.push_back({.send_peer = place.parent, .src = sum, .channel = kUp, .stays = true});
  }
  for (size_t i = 0; i < place.children.size(); ++i) {
    Step add{.recv_peer = place.children[i], .src = sum, .reduce = true, .channel = kUp};
    if (i + 1 < place.children.size()) {
      schedule.accum_count = call.pass_count;
      sum = Slice::of(Buffer::Accum, 0, call.pass_count);
      add.dst = sum;
    } else if (place.parent != kNoPeer) {
      add.send_peer = place.parent;
    } else {
      add.dst = whole(call, Buffer::Output);
      add.finish = true;
    }
    schedule.steps.push_back(add);
  }
}

/// Sends what the top has in `source` down into everybody's Output; `top_copy` is where the top keeps a copy, if
/// anywhere. The top waits for step `after`.
void broadcast_down(const Call& call, const TreePlace& place, const Slice& source, const Slice& top_copy, int channel,
                    int after, Schedule& schedule) {
  const Slice output = whole(call, Buffer::Output);
  const bool top = place.parent == kNoPeer;
  // The first send goes with the copy or the receive, the other one reads again.
  Step step = top ? Step{.src = source, .dst = top_copy, .channel = channel, .after = after}
                  : Step{.recv_peer = place.parent, .dst = output, .channel = channel};
  if (!place.children.empty()) {
    step.send_peer = place.children[0];
    step.stays = true;
    step.lands = output;
  }
  schedule.steps.push_back(step);
  for (size_t i = 1; i < place.children.size(); ++i) {
    schedule.steps.push_back({.send_peer = place.children[i],
                              .src = top ? source : output,
                              .channel = channel,
                              .after = top ? after : kNoStep,
                              .stays = true,
                              .lands = output});
  }
}

}  // namespace

Schedule tree_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  reduce_up(call, place_in_tree(call, call.root), schedule);
  return schedule;
}

Schedule tree_broadcast(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Slice copy = own_copy(call, whole(call, Buffer::Output));
  broadcast_down(call, place_in_tree(call, call.root), whole(call, Buffer::Input), copy, 0, kNoStep, schedule);
  return schedule;
}

Schedule tree_all_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  schedule.num_channels = 2;
  const TreePlace place = place_in_tree(call, 0);
  reduce_up(call, place, schedule);
  const int finished = static_cast<int>(schedule.steps.size()) - 1;
  broadcast_down(call, place, whole(call, Buffer::Output), {}, kDown, finished, schedule);
  return schedule;
}

}  // namespace sixfold::comm
