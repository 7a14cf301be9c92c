// ring: every rank talks to its two neighbours only. N ranks, S bytes of the full buffer.
//
//   ReduceScatter   block b starts at rank b + 1, collects one contribution a hop and ends at rank b
//                   N - 1 rounds, (N-1)/N S sent per rank
//   AllGather       block b starts at rank b and is passed on until all have it
//                   N - 1 rounds, (N-1)/N S sent per rank
//   AllReduce       = ReduceScatter, then AllGather of the parts: 2(N-1) rounds, 2(N-1)/N S sent per rank
//   Broadcast       a chain that starts at the root: N - 1 rounds, S sent per rank, nothing by the last
//   Reduce          a chain that ends at the root: N - 1 rounds, S sent per rank, nothing by the root
//
// A chain is pipelined: a slice goes on while the next one arrives, so a long buffer takes about the time of one hop.
//
// Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009, section 4.
#include "runtime/comm/schedule/builders.h"

namespace sixfold::comm {

namespace {

/// Leaves the sum of everybody's block `rank` of Input, finished, in `result`.
void reduce_scatter(const Call& call, const Slice& result, Schedule& schedule) {
  const int next = neighbour(call, 1), previous = neighbour(call, -1);
  // A pass is small enough for the links to hold (see max_pass_count), so all ranks may begin with a send.
  // In an all-reduce in place, the result that overwrites this block has been added to by all ranks, `next` first.
  schedule.steps.push_back({.send_peer = next, .src = block(call, Buffer::Input, previous), .stays = true});
  for (int k = 2; k < call.size; ++k) {
    schedule.steps.push_back({.recv_peer = previous,
                              .send_peer = next,
                              .src = block(call, Buffer::Input, neighbour(call, -k)),
                              .reduce = true});
  }
  schedule.steps.push_back({.recv_peer = previous,
                            .src = block(call, Buffer::Input, call.rank),
                            .dst = result,
                            .reduce = true,
                            .finish = true});
}

/// Fills all blocks of Output from everybody's `own`; `own_block` is where this rank's goes, unused where it is there.
void all_gather(const Call& call, const Slice& own, const Slice& own_block, Schedule& schedule) {
  const int next = neighbour(call, 1), previous = neighbour(call, -1);
  const Slice landing = block(call, Buffer::Output, call.rank);
  append_send(schedule, {.send_peer = next, .src = own, .dst = own_block, .stays = true, .lands = landing});
  for (int k = 1; k < call.size - 1; ++k) {
    const Slice passed_on = block(call, Buffer::Output, neighbour(call, -k));
    schedule.steps.push_back(
        {.recv_peer = previous, .send_peer = next, .dst = passed_on, .stays = true, .lands = passed_on});
  }
  schedule.steps.push_back({.recv_peer = previous, .dst = block(call, Buffer::Output, next)});
}

}  // namespace

Schedule ring_reduce_scatter(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  reduce_scatter(call, whole(call, Buffer::Output), schedule);
  return schedule;
}

Schedule ring_all_gather(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  all_gather(call, whole(call, Buffer::Input), own_copy(call, block(call, Buffer::Output, call.rank)), schedule);
  return schedule;
}

Schedule ring_all_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Slice own_part = block(call, Buffer::Output, call.rank);
  reduce_scatter(call, own_part, schedule);
  all_gather(call, own_part, {}, schedule);
  return schedule;
}

Schedule ring_broadcast(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const int next = neighbour(call, 1), previous = neighbour(call, -1);
  const Slice output = whole(call, Buffer::Output);
  if (call.rank == call.root) {
    const Slice input = whole(call, Buffer::Input);
    schedule.steps.push_back(
        {.send_peer = next, .src = input, .dst = own_copy(call, output), .stays = true, .lands = output});
  } else {
    Step receive{.recv_peer = previous, .dst = output};
    if (next != call.root) {
      receive.send_peer = next;
      receive.stays = true;
      receive.lands = output;
    }
    schedule.steps.push_back(receive);
  }
  return schedule;
}

Schedule ring_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const int next = neighbour(call, 1), previous = neighbour(call, -1);
  const Slice input = whole(call, Buffer::Input);
  if (previous == call.root) {
    schedule.steps.push_back({.send_peer = next, .src = input, .stays = true});
  } else if (call.rank != call.root) {
    schedule.steps.push_back({.recv_peer = previous, .send_peer = next, .src = input, .reduce = true});
  } else {
    schedule.steps.push_back(
        {.recv_peer = previous, .src = input, .dst = whole(call, Buffer::Output), .reduce = true, .finish = true});
  }
  return schedule;
}

}  // namespace sixfold::comm
