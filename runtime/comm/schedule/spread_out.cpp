// spread_out: AllToAll in which every rank first sends everything, to the one after it, the one after that, ..., and
// then receives. N - 1 rounds, (N-1)/N S sent per rank, where S = bytes of a rank's whole Input.
//
// Where pairwise waits for its peer in each round, nobody waits here before all is sent; in exchange, all messages are
// in the links at once. In place nothing need be put aside: every block has left before the first one comes in.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005,
// section 4 (All-to-all; there with non-blocking sends and receives).
#include "runtime/comm/schedule/builders.h"

namespace sixfold::comm {

Schedule spread_out_all_to_all(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  for (int k = 1; k < call.size; ++k) {
    const int to = neighbour(call, k);
    Step send{.send_peer = to, .src = block(call, Buffer::Input, to), .stays = !call.in_place};
    // Blocks of different size lie at the receiver behind blocks that this rank knows nothing of.
    if (!call.in_place && call.counts == nullptr) send.lands = block(call, Buffer::Output, call.rank);
    schedule.steps.push_back(send);
  }
  const Slice copy = own_copy(call, block(call, Buffer::Output, call.rank));
  if (copy.used) schedule.steps.push_back({.src = block(call, Buffer::Input, call.rank), .dst = copy});
  for (int k = 1; k < call.size; ++k) {
    const int from = neighbour(call, -k);
    schedule.steps.push_back({.recv_peer = from, .dst = block(call, Buffer::Output, from)});
  }
  return schedule;
}

}  // namespace sixfold::comm
