// halving_doubling: exchanges with partners at half the distance, then half of that, ... N ranks, S bytes of the full
// buffer.
//
//   ReduceScatter  recursive halving: a rank keeps the half of the blocks on its side, adds its partner's to them, and
//                  sends the other half: log2 N rounds, (N-1)/N S sent per rank
//   AllGather      recursive doubling, the same exchanges backwards: log2 N rounds, (N-1)/N S sent per rank
//   AllReduce      (Rabenseifner) = ReduceScatter, then AllGather of the parts: 2 log2 N rounds, 2(N-1)/N S sent per
//                  rank
//
// For N = 2^k + surplus, with the fold of fold.h, which costs:
//   ReduceScatter  S in to a partner and a block of S/N out: k + 3 rounds, of which one because the last exchange sends
//                  the two blocks of a pair one by one
//   AllGather      a block in and the N - 1 blocks of the others out, which go in two messages: k + 3 rounds
//   AllReduce      S in and S out; the active ranks send 2(P-1)/P S, P = 2^k: 2 k + 2 rounds
// Over all ranks that is (N-1) S for ReduceScatter and AllGather and 2 (N-1) S for AllReduce, what the ring sends too.
//
// Rounds hold where the links hold N/2 blocks of the pass; else an exchange goes in several messages.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, section
// 4 (Allgather, Reduce-scatter, Reduce and Allreduce); Rabenseifner, "Optimization of collective reduction
// operations", 2004.
#include <algorithm>

#include "runtime/comm/schedule/fold.h"

namespace sixfold::comm {

namespace {

/// What active ranks exchange, in items: blocks of a ReduceScatter or an AllGather, one or two for each active rank;
/// or, in an AllReduce, one part of the pass for each.
struct Items {
  Items(const Call& of_call, const Fold& of_fold) : call(of_call), fold(of_fold) {}

  /// The first item of an active rank; of num_active: their number.
  int first(int number) const { return call.primitive == Primitive::AllReduce ? number : fold.rank_of(number); }

  /// Items of active ranks [begin, end), as runs that go in one step.
  std::vector<BlockRun> runs(int begin, int end) const {
    if (call.primitive == Primitive::AllReduce) return {{begin, end}};
    return block_runs(call, first(begin), first(end));
  }

  Slice slice(Buffer buffer, const BlockRun& run) const {
    if (call.primitive != Primitive::AllReduce) return blocks(call, buffer, run.begin, run.end);
    return Slice::of(buffer, call.pass_offset + bound(run.begin), bound(run.end) - bound(run.begin));
  }

  /// Where part `number` of an AllReduce begins: cut so that halves, quarters, ... differ by one element at most.
  size_t bound(int number) const {
    const size_t parts = static_cast<size_t>(fold.num_active), n = static_cast<size_t>(number);
    return n * (call.pass_count / parts) + (n * (call.pass_count % parts) + parts - 1) / parts;
  }

  const Call& call;
  const Fold& fold;
};

/// Active ranks [begin, end).
struct Side {
  int begin, end;
};

/// The `count` active ranks, count a power of two, that `number` is one of.
Side side_of(int number, int count) {
  const int begin = number & ~(count - 1);
  return {begin, begin + count};
}

/// Recursive halving from `values` on (Input, or where a fold left the sums) with sums in `sums`. Leaves this rank's
/// own item, finished, in `result`, and sends a surplus partner's, where there is one, to it.
/// What is sent out of Input or Output stays: what overwrites it, if anything, is the result of an AllReduce, which
/// contains what the receiver made of it.
void halve(const Items& items, Buffer values, Buffer sums, const Slice& result, Schedule& schedule) {
  const Fold& fold = items.fold;
  for (int distance = fold.num_active / 2; distance > 1; distance /= 2) {
    const int other = fold.active ^ distance, peer = fold.rank_of(other);
    const Side own = side_of(fold.active, distance), theirs = side_of(other, distance);
    std::vector<Step> sends, receives;
    for (const BlockRun& run : items.runs(theirs.begin, theirs.end)) {
      sends.push_back({.send_peer = peer, .src = items.slice(values, run), .stays = values != Buffer::Accum});
    }
    for (const BlockRun& run : items.runs(own.begin, own.end)) {
      receives.push_back(
          {.recv_peer = peer, .src = items.slice(values, run), .dst = items.slice(sums, run), .reduce = true});
    }
    append_exchange(schedule, sends, receives);
    values = sums;
  }
  // The last exchange goes item by item, because this rank and its surplus partner want one each.
  const int other = fold.active ^ 1, peer = fold.rank_of(other);
  std::vector<Step> sends, receives;
  for (int item = items.first(other); item < items.first(other + 1); ++item) {
    sends.push_back(
        {.send_peer = peer, .src = items.slice(values, {item, item + 1}), .stays = values != Buffer::Accum});
  }
  for (int item = items.first(fold.active); item < items.first(fold.active + 1); ++item) {
    Step add{.recv_peer = peer, .src = items.slice(values, {item, item + 1}), .reduce = true, .finish = true};
    const bool own = item == items.first(fold.active);
    if (own) add.dst = result;
    if (!own) add.send_peer = fold.partner;
    receives.push_back(add);
  }
  append_exchange(schedule, sends, receives);
}

/// Recursive doubling from this rank's own items in Output on, until Output holds all.
void doubling(const Items& items, Schedule& schedule) {
  const Fold& fold = items.fold;
  for (int distance = 1; distance < fold.num_active; distance *= 2) {
    const int other = fold.active ^ distance, peer = fold.rank_of(other);
    const Side own = side_of(fold.active, distance), theirs = side_of(other, distance);
    std::vector<Step> sends, receives;
    for (const BlockRun& run : items.runs(own.begin, own.end)) {
      const Slice slice = items.slice(Buffer::Output, run);
      sends.push_back({.send_peer = peer, .src = slice, .stays = true, .lands = slice});
    }
    for (const BlockRun& run : items.runs(theirs.begin, theirs.end)) {
      receives.push_back({.recv_peer = peer, .dst = items.slice(Buffer::Output, run)});
    }
    append_exchange(schedule, sends, receives);
  }
}

/// All blocks but `rank`'s: what its partner hands to a surplus rank at the end of an AllGather.
std::vector<Slice> blocks_of_others(const Call& call, int rank) {
  std::vector<Slice> slices;
  for (const BlockRun& part : {BlockRun{0, rank}, BlockRun{rank + 1, call.size}}) {
    for (const BlockRun& run : block_runs(call, part.begin, part.end)) {
      slices.push_back(blocks(call, Buffer::Output, run.begin, run.end));
    }
  }
  return slices;
}

}  // namespace

Schedule halving_doubling_all_reduce(const Call& call) {
  if (call.size == 1) return single_rank(call);
  const Fold fold(call);
  if (fold.is_surplus) return surplus_all_reduce(call, fold);
  Schedule schedule;
  const Items items(call, fold);
  const Buffer values = fold_in(call, fold, schedule);
  halve(items, values, Buffer::Output, items.slice(Buffer::Output, {fold.active, fold.active + 1}), schedule);
  doubling(items, schedule);
  fold_out(call, fold, schedule);
  return schedule;
}

Schedule halving_doubling_reduce_scatter(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Fold fold(call);
  const std::vector<BlockRun> all = block_runs(call, 0, call.size);
  if (fold.is_surplus) {
    for (const BlockRun& run : all) {
      schedule.steps.push_back({.send_peer = fold.partner, .src = blocks(call, Buffer::Input, run.begin, run.end)});
    }
    schedule.steps.push_back({.recv_peer = fold.partner, .dst = whole(call, Buffer::Output)});
    return schedule;
  }
  Buffer values = Buffer::Input;
  if (fold.num_active > 2 || fold.partner != kNoPeer) {
    const Slice last = block(call, Buffer::Accum, call.size - 1);
    schedule.accum_count = last.offset + last.count;
  }
  if (fold.partner != kNoPeer) {
    for (const BlockRun& run : all) {
      schedule.steps.push_back({.recv_peer = fold.partner,
                                .src = blocks(call, Buffer::Input, run.begin, run.end),
                                .dst = blocks(call, Buffer::Accum, run.begin, run.end),
                                .reduce = true});
    }
    values = Buffer::Accum;
  }
  halve(Items(call, fold), values, Buffer::Accum, whole(call, Buffer::Output), schedule);
  return schedule;
}

Schedule halving_doubling_all_gather(const Call& call) {
  if (call.size == 1) return single_rank(call);
  Schedule schedule;
  const Fold fold(call);
  if (!call.in_place) {
    schedule.steps.push_back({.src = whole(call, Buffer::Input), .dst = block(call, Buffer::Output, call.rank)});
  }
  if (fold.is_surplus) {
    const Slice own = block(call, Buffer::Output, call.rank);
    append_send(schedule, {.send_peer = fold.partner, .src = own, .stays = true, .lands = own});
    for (const Slice& slice : blocks_of_others(call, call.rank)) {
      schedule.steps.push_back({.recv_peer = fold.partner, .dst = slice});
    }
    return schedule;
  }
  if (fold.partner != kNoPeer) {
    schedule.steps.push_back({.recv_peer = fold.partner, .dst = block(call, Buffer::Output, fold.partner)});
  }
  doubling(Items(call, fold), schedule);
  if (fold.partner != kNoPeer) {
    for (const Slice& slice : blocks_of_others(call, fold.partner)) {
      append_send(schedule, {.send_peer = fold.partner, .src = slice, .stays = true, .lands = slice});
    }
  }
  return schedule;
}

}  // namespace sixfold::comm
