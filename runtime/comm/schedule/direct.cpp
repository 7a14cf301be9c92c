// direct: every rank sends straight to every other one. N ranks, S bytes of the full buffer.
//
// Reductions are deterministic: whoever reduces an element adds the contributions in rank order, (((x0 + x1) + x2) +
// ...), in Accum and rounds once. The bits depend neither on the message size nor on how a buffer is cut, nor on who
// reduces.
//
//   ReduceScatter   everybody sends block p to rank p, which adds: N - 1 rounds, (N-1)/N S sent per rank
//   AllGather       everybody sends its block to all: N - 1 rounds, (N-1)/N S sent per rank
//   AllReduce       two shots = ReduceScatter, then AllGather of the parts: 2(N-1) rounds, 2(N-1)/N S sent per rank
//                   one shot, where is_one_shot(): everybody sends all and adds all: N - 1 rounds, (N-1) S sent per
//                   rank
//   Broadcast       the root sends to all: N - 1 rounds, (N-1) S sent by the root
//   Reduce          all send to the root, which adds: N - 1 rounds, S sent per rank, nothing by the root
//
// Rank r sends to r + 1 first, then to r + 2, ..., so that in no round two ranks send to the same one.
#include "runtime/comm/schedule/builders.h"

namespace sixfold::comm {

namespace {

/// Sends `send.src` to all others. Where this rank keeps a copy in send.dst, it makes it with the first send.
void send_to_all(const Call& call, Step send, Schedule& schedule) {
  send.send_peer = neighbour(call, 1);
  append_send(schedule, send);
  send.dst = {};
  for (int k = 2; k < call.size; ++k) {
    send.send_peer = neighbour(call, k);
    schedule.steps.push_back(send);
  }
}

/// Receives everybody's contribution to what this rank has in `own` and leaves the sum in rank order, finished, in
/// `result`. In place, `result` is the memory of `own`.
///
/// A step has two operands and addition commutes, so N - 1 receives do all the adding for ranks 0 and 1, whose own
/// contribution is one of the first two. Later ranks put x0 down first and add their own in its turn.
void add_in_rank_order(const Call& call, const Slice& own, const Slice& result, Schedule& schedule) {
  const Slice sum = Slice::of(Buffer::Accum, 0, own.count);
  if (call.size > 2) schedule.accum_count = own.count;

  const bool own_is_early = call.rank <= 1;
  schedule.steps.push_back(own_is_early ? Step{.recv_peer = 1 - call.rank, .src = own, .dst = sum, .reduce = true}
                                        : Step{.recv_peer = 0, .dst = sum});
  for (int contributor = own_is_early ? 2 : 1; contributor < call.size; ++contributor) {
    schedule.steps.push_back(contributor == call.rank
                                 ? Step{.src = own, .dst = sum, .reduce = true}
                                 : Step{.recv_peer = contributor, .src = sum, .dst = sum, .reduce = true});
  }
  // The last receive rounds into the result. Where our own contribution comes last, the sum has to be moved there.
  if (schedule.steps.back().recv_peer == kNoPeer) schedule.steps.push_back({.src = sum});
  schedule.steps.back().dst = result;
  schedule.steps.back().finish = true;
}

void reduce_scatter(const Call& call, const Slice& result, Schedule& schedule) {
  for (int k = 1; k < call.size; ++k) {
    const int peer = neighbour(call, k);
    // In an all-reduce in place, what overwrites the block is the result, which `peer` sends after reading it.
    schedule.steps.push_back({.send_peer = peer, .src = block(call, Buffer::Input, peer), .stays = true});
  }
  add_in_rank_order(call, block(call, Buffer::Input, call.rank), result, schedule);
}

void all_gather(const Call& call, const Slice& own, const Slice& own_block, Schedule& schedule) {
  const Slice landing = block(call, Buffer::Output, call.rank);
  send_to_all(call, {.src = own, .dst = own_block, .stays = true, .lands = landing}, schedule);
  for (int k = 1; k < call.size; ++k) {
    const int peer = neighbour(call, -k);
    schedule.steps.push_back({.recv_peer = peer, .dst = block(call, Buffer::Output, peer)});
  }
}

}  // namespace

Schedule direct_reduce_scatter(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  reduce_scatter(call, whole(call, Buffer::Output), schedule);
  return schedule;
}

Schedule direct_all_gather(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  all_gather(call, whole(call, Buffer::Input), own_copy(call, block(call, Buffer::Output, call.rank)), schedule);
  return schedule;
}

Schedule direct_all_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  if (is_one_shot(call.count, call.size)) {
    send_to_all(call, {.src = whole(call, Buffer::Input), .stays = !call.in_place}, schedule);
    add_in_rank_order(call, whole(call, Buffer::Input), whole(call, Buffer::Output), schedule);
  } else {
    const Slice own_part = block(call, Buffer::Output, call.rank);
    reduce_scatter(call, own_part, schedule);
    all_gather(call, own_part, {}, schedule);
  }
  return schedule;
}

Schedule direct_broadcast(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Slice output = whole(call, Buffer::Output);
  if (call.rank == call.root) {
    const Step send{.src = whole(call, Buffer::Input), .dst = own_copy(call, output), .stays = true, .lands = output};
    send_to_all(call, send, schedule);
  } else {
    schedule.steps.push_back({.recv_peer = call.root, .dst = output});
  }
  return schedule;
}

Schedule direct_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Slice input = whole(call, Buffer::Input);
  if (call.rank == call.root) {
    add_in_rank_order(call, input, whole(call, Buffer::Output), schedule);
  } else {
    schedule.steps.push_back({.send_peer = call.root, .src = input, .stays = true});
  }
  return schedule;
}

}  // namespace sixfold::comm
