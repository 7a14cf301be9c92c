// recursive_doubling: groups of ranks that know the same double in each round. N ranks, S bytes of the full buffer.
//
//   AllReduce   in round j a rank and the one whose number differs in bit j swap their sums, and both add them
//               log2 N rounds, S log2 N sent per rank. For N = 2^k + surplus, with the fold of fold.h: k + 2 rounds;
//               k S sent per rank, S more by those that have a surplus partner, and S in all by a surplus rank
//   AllGather   N a power of two: likewise, each sending all blocks that it has
//               any other N (Bruck): in round j rank r sends the 2^j blocks from its own on to rank r - 2^j; the last
//               round sends what is lacking
//               (N-1)/N S sent per rank. log2 N rounds where the links hold N/2 blocks of the pass, else one for each
//               block or so; for other N at most 2 ceil(log2 N), since blocks that wrap around the end of the buffer
//               go in two messages
//
// Both partners add the same two sums, and round them alike (in Output), so all ranks end with the same bits.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, sections
// 4.1 and 4.5; Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
// systems", 1997, section 4.
#include <algorithm>

#include "runtime/comm/schedule/fold.h"

namespace sixfold::comm {

namespace {

/// Blocks of Output from `first` on, around its end: the runs in which they travel.
std::vector<Slice> slices_from(const Call& call, int first, int num_blocks) {
  const int before_end = std::min(num_blocks, call.size - first);
  std::vector<BlockRun> runs = block_runs(call, first, first + before_end);
  for (const BlockRun& run : block_runs(call, 0, num_blocks - before_end)) runs.push_back(run);
  std::vector<Slice> slices;
  for (const BlockRun& run : runs) slices.push_back(blocks(call, Buffer::Output, run.begin, run.end));
  return slices;
}

/// One round: sends the blocks from `own_first` on, receives as many from `their_first` on.
void exchange(const Call& call, int to, int own_first, int from, int their_first, int num_blocks, Schedule& schedule) {
  std::vector<Step> sends, receives;
  for (const Slice& slice : slices_from(call, own_first, num_blocks)) sends.push_back({.send_peer = to, .src = slice});
  for (const Slice& slice : slices_from(call, their_first, num_blocks)) {
    receives.push_back({.recv_peer = from, .dst = slice});
  }
  append_exchange(schedule, sends, receives);
}

}  // namespace

Schedule recursive_doubling_all_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  const Fold fold(call);
  if (fold.is_surplus) return surplus_all_reduce(call, fold);
  Schedule schedule;
  Slice sum = whole(call, fold_in(call, fold, schedule));
  for (int bit = 1; bit < fold.num_active; bit *= 2) {
    const int peer = fold.rank_of(fold.active ^ bit);
    append_send(schedule, {.send_peer = peer, .src = sum});
    const Slice output = whole(call, Buffer::Output);
    schedule.steps.push_back({.recv_peer = peer, .src = sum, .dst = output, .reduce = true});
    sum = output;
  }
  schedule.steps.back().finish = true;
  fold_out(call, fold, schedule);
  return schedule;
}

Schedule recursive_doubling_all_gather(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  if (!call.in_place) {
    schedule.steps.push_back({.src = whole(call, Buffer::Input), .dst = block(call, Buffer::Output, call.rank)});
  }
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(call.size));
  for (int known = 1; known < call.size; known *= 2) {
    if (power_of_two) {
      const int peer = call.rank ^ known, mask = ~(known - 1);
      exchange(call, peer, call.rank & mask, peer, peer & mask, known, schedule);
    } else {
      const int from = neighbour(call, known);
      exchange(call, neighbour(call, -known), call.rank, from, from, std::min(known, call.size - known), schedule);
    }
  }
  return schedule;
}

}  // namespace sixfold::comm
