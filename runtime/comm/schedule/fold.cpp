#include "runtime/comm/schedule/fold.h"

namespace sixfold::comm {

Schedule surplus_all_reduce(const Call& call, const Fold& fold) {
  Schedule schedule;
  schedule.steps.push_back({.send_peer = fold.partner, .src = whole(call, Buffer::Input), .stays = true});
  schedule.steps.push_back({.recv_peer = fold.partner, .dst = whole(call, Buffer::Output)});
  return schedule;
}

Buffer fold_in(const Call& call, const Fold& fold, Schedule& schedule) {
  if (fold.partner == kNoPeer) return Buffer::Input;
  schedule.steps.push_back({.recv_peer = fold.partner,
                            .src = whole(call, Buffer::Input),
                            .dst = whole(call, Buffer::Output),
                            .reduce = true});
  return Buffer::Output;
}

void fold_out(const Call& call, const Fold& fold, Schedule& schedule) {
  if (fold.partner == kNoPeer) return;
  const Slice output = whole(call, Buffer::Output);
  append_send(schedule, {.send_peer = fold.partner, .src = output, .stays = true, .lands = output});
}

}  // namespace sixfold::comm
