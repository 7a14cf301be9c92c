// What a Replay checks before the first step (are all steps sound?) and after the last one (is the result right?).
#include <algorithm>

#include "runtime/comm/schedule/replay.h"

namespace sixfold::comm {

size_t Replay::buffer_count(int rank, const Schedule& schedule, Buffer buffer) const {
  const Memory& memory = memory_[static_cast<size_t>(rank)];
  switch (buffer) {
    case Buffer::Input:
      return memory.input_count;
    case Buffer::Output:
      return memory.output_count;
    case Buffer::Scratch:
      return schedule.scratch_count;
    case Buffer::Accum:
      break;
  }
  return schedule.accum_count;
}

void Replay::check_step(const Cursor& at, const Schedule& schedule, const Step& step) const {
  const auto require = [&](bool condition, const char* what) {
    if (!condition) fail(Fault::OutOfRange, at, what);
  };
  for (int peer : {step.recv_peer, step.send_peer}) {
    require(peer >= kNoPeer && peer < call_.size && peer != at.rank, "names a peer that does not exist");
  }
  require(step.channel >= 0 && step.channel < schedule.num_channels, "is on a channel that does not exist");
  for (const Slice& slice : {step.src, step.dst}) {
    const size_t available = buffer_count(at.rank, schedule, slice.buffer);
    require(!slice.used || (slice.count <= available && slice.offset <= available - slice.count),
            "reaches beyond the end of a buffer");
  }
  require(!step.dst.used || step.dst.buffer != Buffer::Input, "writes to Input");
  require(step.src.used || step.dst.used, "has neither a source nor a destination");
  require(!step.src.used || !step.dst.used || step.src.count == step.dst.count, "has operands of different size");
  const bool receives = step.recv_peer != kNoPeer;
  require(step.reduce ? step.src.used && (receives || step.dst.used) : step.src.used != receives,
          "has not the operands that it needs");
  const auto peers_see = [](const Slice& slice) {
    return slice.used && (slice.buffer == Buffer::Input || slice.buffer == Buffer::Output);
  };
  const bool copies = !step.reduce && !step.finish;
  require(!step.stays || (step.send_peer != kNoPeer && peers_see(step.dst.used ? step.dst : step.src) &&
                          (step.dst.used || copies)),
          "promises that bytes stay which it does not send as they lie in Input or Output");
  if (step.lands.used) {
    const Slice& landing = step.lands;
    const size_t available = step.send_peer == kNoPeer ? 0 : memory_[static_cast<size_t>(step.send_peer)].output_count;
    require(landing.buffer == Buffer::Output && landing.count == step.count() && landing.count <= available &&
                landing.offset <= available - landing.count,
            "promises a landing outside the receiver's Output, or of another size");
  }
  if (step.after != kNoStep) {
    require(step.after >= 0 && static_cast<size_t>(step.after) < schedule.steps.size(),
            "waits for a step that does not exist");
    const Step& awaited = schedule.steps[static_cast<size_t>(step.after)];
    require(awaited.channel != step.channel && awaited.count() == step.count(),
            "waits for a step of its own channel, or of another size");
  }
}

void Replay::check_all_steps() const {
  Cursor at;
  for (at.pass = 0; at.pass < passes_.size(); ++at.pass) {
    for (at.rank = 0; at.rank < call_.size; ++at.rank) {
      const Schedule& schedule = schedule_at(at);
      for (at.step = 0; at.step < schedule.steps.size(); ++at.step) {
        at.channel = schedule.steps[at.step].channel;
        check_step(at, schedule, schedule.steps[at.step]);
      }
    }
  }
}

void Replay::check_all_done() const {
  for (const auto& cursors : cursors_) {
    for (const Cursor& cursor : cursors) {
      if (cursor.pass < passes_.size()) fail(Fault::Deadlock, cursor, "cannot go on, nor can any other rank");
    }
  }
}

void Replay::check_nothing_left() const {
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].head == links_[i].tail) continue;
    const size_t pair = i / static_cast<size_t>(num_channels_), size = static_cast<size_t>(call_.size);
    throw FaultFound{Fault::Leftover, "rank " + std::to_string(pair / size) + " sent " +
                                          std::to_string(links_[i].tail - links_[i].head) + " slices that rank " +
                                          std::to_string(pair % size) + " never received"};
  }
}

namespace {

/// Which block of a buffer with a block for each rank element `i` is in; `i` becomes its place in there.
int block_of_element(const Call& call, Buffer buffer, size_t& i) {
  int index = 0;
  while (i >= block_range(call, buffer, index).end) ++index;
  i -= block_range(call, buffer, index).begin;
  return index;
}

/// What element `i` of the Output of call.rank must hold.
Symbol expected_symbol(const Call& call, size_t i) {
  Symbol expected;
  expected.index = i;
  switch (call.primitive) {
    case Primitive::Broadcast:
      expected.ranks.set(static_cast<size_t>(call.root));
      break;
    case Primitive::AllGather:
      expected.ranks.set(static_cast<size_t>(block_of_element(call, Buffer::Output, expected.index)));
      break;
    case Primitive::AllToAll: {
      Call sender = call;
      sender.rank = block_of_element(call, Buffer::Output, expected.index);
      expected.ranks.set(static_cast<size_t>(sender.rank));
      expected.index += block_range(sender, Buffer::Input, call.rank).begin;
      break;
    }
    case Primitive::ReduceScatter:
      expected.index += block_range(call, Buffer::Input, call.rank).begin;
      [[fallthrough]];
    default:
      for (int r = 0; r < call.size; ++r) expected.ranks.set(static_cast<size_t>(r));
  }
  // In place, a group of one has nothing to do.
  expected.finished = reduces(call.primitive) && !(call.size == 1 && call.in_place);
  return expected;
}

}  // namespace

void Replay::check_results(int rank) const {
  const Memory& memory = memory_[static_cast<size_t>(rank)];
  Call call = call_;
  call.rank = rank;
  for (size_t i = 0; i < memory.output_count; ++i) {
    const Symbol expected = expected_symbol(call, i);
    const Symbol& found = memory.output[i];
    const auto fail_at = [&](Fault fault, const std::string& what) {
      throw FaultFound{fault, "rank " + std::to_string(rank) + ", Output element " + std::to_string(i) + ": " + what};
    };
    if (found.ranks.none()) fail_at(Fault::MissingAdd, "was never written");
    if (found.index != expected.index || (found.ranks & ~expected.ranks).any()) {
      fail_at(Fault::WrongElement, "holds element " + std::to_string(found.index) + " of other ranks or places");
    }
    for (int r = 0; r < call_.size; ++r) {
      const size_t bit = static_cast<size_t>(r);
      if (expected.ranks[bit] && !found.ranks[bit]) {
        fail_at(Fault::MissingAdd, "lacks the contribution of rank " + std::to_string(r));
      }
    }
    if (found.finished != expected.finished) {
      fail_at(Fault::Unfinished, found.finished ? "was scaled though nothing is reduced" : "was never scaled");
    }
  }
}

}  // namespace sixfold::comm
