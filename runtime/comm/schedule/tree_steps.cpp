#include "runtime/comm/schedule/tree_steps.h"

#include <algorithm>

namespace sixfold::comm {

void reduce_up(const TreePlace& place, const Slice& input, const Slice& result, int channel, Schedule& schedule) {
  // In an all-reduce in place, what overwrites the Input of a leaf comes down after its parent has added it.
  if (place.children.empty()) {
    schedule.steps.push_back({.send_peer = place.parent, .src = input, .channel = channel, .stays = true});
  }
  Slice sum = input;
  for (size_t i = 0; i < place.children.size(); ++i) {
    Step add{.recv_peer = place.children[i], .src = sum, .reduce = true, .channel = channel};
    if (i + 1 < place.children.size()) {
      schedule.accum_count = std::max(schedule.accum_count, input.count);
      sum = Slice::of(Buffer::Accum, 0, input.count);
      add.dst = sum;
    } else if (place.parent != kNoPeer) {
      add.send_peer = place.parent;
    } else {
      add.dst = result;
      add.finish = true;
    }
    schedule.steps.push_back(add);
  }
}

void broadcast_down(const TreePlace& place, const Slice& source, const Slice& output, const Slice& top_copy,
                    int channel, int after, Schedule& schedule) {
  const bool top = place.parent == kNoPeer;
  // The first send goes with the copy or the receive, the others read again.
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

}  // namespace sixfold::comm
