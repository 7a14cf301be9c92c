#include "runtime/comm/schedule/ring_steps.h"

namespace sixfold::comm {

void ring_reduce_scatter(const Ring& ring, const BlockOf& block_of, const Slice& result, bool finish,
                         Schedule& schedule) {
  const int next = ring.at(1), previous = ring.at(-1);
  // A pass is small enough for the links to hold (see max_pass_count), so all ranks may begin with a send.
  // In an all-reduce in place, the result that overwrites this block has been added to by all ranks, `next` first.
  const Slice first = block_of(previous);
  append_send(schedule, {.send_peer = next, .src = first, .stays = first.buffer != Buffer::Accum});
  for (int k = 2; k < ring.size(); ++k) {
    schedule.steps.push_back({.recv_peer = previous, .send_peer = next, .src = block_of(ring.at(-k)), .reduce = true});
  }
  schedule.steps.push_back(
      {.recv_peer = previous, .src = block_of(ring.at(0)), .dst = result, .reduce = true, .finish = finish});
}

void ring_all_gather(const Ring& ring, const Slice& own, const Slice& copy, const BlockOf& block_of,
                     Schedule& schedule) {
  const int next = ring.at(1), previous = ring.at(-1);
  append_send(schedule, {.send_peer = next, .src = own, .dst = copy, .stays = true, .lands = block_of(ring.at(0))});
  for (int k = 1; k < ring.size() - 1; ++k) {
    const Slice passed_on = block_of(ring.at(-k));
    schedule.steps.push_back(
        {.recv_peer = previous, .send_peer = next, .dst = passed_on, .stays = true, .lands = passed_on});
  }
  schedule.steps.push_back({.recv_peer = previous, .dst = block_of(next)});
}

}  // namespace sixfold::comm
