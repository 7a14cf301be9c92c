// recursive_doubling: groups of ranks that know the same double in each round. N ranks, S bytes of the full buffer.
//
//   AllReduce   in round j a rank and the one whose number differs in bit j swap their sums, and both add them
//               log2 N rounds, S log2 N sent per rank. For N = 2^k + surplus, with the fold of fold.h: k + 2 rounds;
//               k S sent per rank, S more by those that have a surplus partner, and S in all by a surplus rank
//   AllGather   N a power of two: likewise, each sending all blocks that it has
//               any other N (Bruck): in round j rank r sends the 2^j blocks from its own on to rank r - 2^j; the last
//               round sends what is lacking. Blocks gather in Scratch, the own one first, because around the end of
//               Output they would not lie side by side
//               ceil(log2 N) rounds, (N-1)/N S sent per rank. Rounds hold where the links hold what is sent in one;
//               else it goes in several messages
//
// Both partners add the same two sums, and round them alike (in Output), so all ranks end with the same bits.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, section
// 4 (Allgather, Reduce and Allreduce); Bruck et al., "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", 1997 (concatenation).
#include <algorithm>

#include "runtime/comm/schedule/fold.h"

namespace sixfold::comm {

namespace {

void gather_by_doubling(const Call& call, Schedule& schedule) {
  const auto slices_of = [&](int first, int num_blocks) {
    std::vector<Slice> slices;
    for (const BlockRun& run : block_runs(call, first, first + num_blocks)) {
      slices.push_back(blocks(call, Buffer::Output, run.begin, run.end));
    }
    return slices;
  };
  for (int known = 1; known < call.size; known *= 2) {
    const int peer = call.rank ^ known, mask = ~(known - 1);
    std::vector<Step> sends, receives;
    for (const Slice& slice : slices_of(call.rank & mask, known)) {
      sends.push_back({.send_peer = peer, .src = slice, .stays = true, .lands = slice});
    }
    for (const Slice& slice : slices_of(peer & mask, known)) receives.push_back({.recv_peer = peer, .dst = slice});
    append_exchange(schedule, sends, receives);
  }
}

/// Scratch with the pass of all blocks, those of this rank, the next one, ... side by side at places 0, 1, ...
class Places {
 public:
  explicit Places(const Call& call) : call_(call), begins_{0} {
    for (int place = 0; place < call.size; ++place) begins_.push_back(begins_.back() + in_output(place).count);
  }
  Slice in_output(int place) const { return block(call_, Buffer::Output, neighbour(call_, place)); }
  Slice in_scratch(int begin, int end) const {
    const size_t from = begins_[static_cast<size_t>(begin)], to = begins_[static_cast<size_t>(end)];
    return Slice::of(Buffer::Scratch, from, to - from);
  }
  std::vector<Slice> runs(int begin, int end) const {
    std::vector<Slice> slices;
    for (const BlockRun& run : block_runs(call_, begin, end, [&](int place) { return in_output(place).count; })) {
      slices.push_back(in_scratch(run.begin, run.end));
    }
    return slices;
  }
  size_t count() const { return begins_.back(); }

 private:
  const Call& call_;
  std::vector<size_t> begins_;
};

void gather_by_places(const Call& call, Schedule& schedule) {
  const Places places(call);
  schedule.scratch_count = places.count();
  schedule.steps.push_back({.src = whole(call, Buffer::Input), .dst = places.in_scratch(0, 1)});
  for (int known = 1; known < call.size; known *= 2) {
    const int num_sent = std::min(known, call.size - known);
    const int to = neighbour(call, -known), from = neighbour(call, known);
    std::vector<Step> sends, receives;
    for (const Slice& slice : places.runs(0, num_sent)) sends.push_back({.send_peer = to, .src = slice});
    for (const Slice& slice : places.runs(known, known + num_sent)) {
      receives.push_back({.recv_peer = from, .dst = slice});
    }
    append_exchange(schedule, sends, receives);
  }
  for (int place = call.in_place ? 1 : 0; place < call.size; ++place) {
    schedule.steps.push_back({.src = places.in_scratch(place, place + 1), .dst = places.in_output(place)});
  }
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
  if (!std::has_single_bit(static_cast<unsigned>(call.size))) {
    gather_by_places(call, schedule);
    return schedule;
  }
  if (!call.in_place) {
    schedule.steps.push_back({.src = whole(call, Buffer::Input), .dst = block(call, Buffer::Output, call.rank)});
  }
  gather_by_doubling(call, schedule);
  return schedule;
}

}  // namespace sixfold::comm
