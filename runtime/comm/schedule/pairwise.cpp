// pairwise: AllToAll in N - 1 rounds; in round k every rank sends to the one k after it and receives from the one k
// before. (N-1)/N S sent per rank, where S = bytes of a rank's whole Input.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005,
// section 4.4.
#include "runtime/comm/schedule/builders.h"

namespace sixfold::comm {

Schedule pairwise_all_to_all(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  // In place, the block that goes out in round k is overwritten by what comes in in round N - k, from the same peer.
  // Where that round is the earlier one, the block is put aside first.
  const auto outgoing = [&](int k) {
    const Slice input = block(call, Buffer::Input, neighbour(call, k));
    const int num_safe = call.size / 2;  // rounds 1 .. num_safe send before they are overwritten
    if (!call.in_place || k <= num_safe) return input;
    return Slice::of(Buffer::Scratch, static_cast<size_t>(k - num_safe - 1) * call.pass_count, call.pass_count);
  };
  for (int k = 1; k < call.size; ++k) {
    const Slice source = outgoing(k);
    if (source.buffer != Buffer::Scratch) continue;
    schedule.steps.push_back({.src = block(call, Buffer::Input, neighbour(call, k)), .dst = source});
    schedule.scratch_count = source.offset + source.count;
  }
  if (!call.in_place) {
    schedule.steps.push_back(
        {.src = block(call, Buffer::Input, call.rank), .dst = block(call, Buffer::Output, call.rank)});
  }
  for (int k = 1; k < call.size; ++k) {
    const int from = neighbour(call, -k);
    Step send{.send_peer = neighbour(call, k), .src = outgoing(k)};
    // In place, the block that comes in from the same peer in round N - k was sent after that peer had read this one.
    send.stays = !call.in_place || 2 * k < call.size;
    // With blocks of different size, only the receiver knows where in its Output they lie.
    if (!call.in_place && call.counts == nullptr) send.lands = block(call, Buffer::Output, call.rank);
    schedule.steps.push_back(send);
    schedule.steps.push_back({.recv_peer = from, .dst = block(call, Buffer::Output, from)});
  }
  return schedule;
}

}  // namespace sixfold::comm
