#include "runtime/comm/schedule/replay.h"

#include <algorithm>
#include <tuple>

#include "runtime/comm/schedule/topology.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

Replay::Replay(const Call& call, const std::vector<std::vector<Schedule>>& passes, int num_slots, size_t slot_elements)
    : call_(call),
      passes_(passes),
      num_slots_(static_cast<size_t>(num_slots)),
      slot_elements_(slot_elements),
      memory_(static_cast<size_t>(call.size)),
      sent_elements_(static_cast<size_t>(call.size), 0),
      sent_by_link_(call.topology == nullptr ? 0 : static_cast<size_t>(call.size)) {
  for (const auto& pass : passes_) {
    for (const Schedule& schedule : pass) num_channels_ = std::max(num_channels_, schedule.num_channels);
  }
  for (int rank = 0; rank < call.size; ++rank) {
    std::vector<Cursor>& cursors = cursors_.emplace_back();
    for (int channel = 0; channel < num_channels_; ++channel) cursors.push_back({rank, channel});
    lay_out_memory(rank);
  }
  links_.resize(static_cast<size_t>(call.size * call.size * num_channels_));
  size_t num_elements = 0;
  for (Memory& memory : memory_) {
    memory.first_element = num_elements;
    num_elements +=
        memory.input_memory.size() + memory.output_memory.size() + memory.scratch.size() + memory.accum.size();
  }
  races_ = RaceDetector(static_cast<size_t>(call.size * num_channels_), num_elements);
}

void Replay::lay_out_memory(int rank) {
  Memory& memory = memory_[static_cast<size_t>(rank)];
  Call call = call_;
  call.rank = rank;
  const size_t num_input = input_count(call), num_output = output_count(call);
  if (call_.in_place) {
    memory.output_memory.resize(std::max(num_input, num_output));
    Symbol* shared = memory.output_memory.data();
    const auto own_block = [&](Buffer buffer) { return shared + block_range(call, buffer, rank).begin; };
    memory.input = call_.primitive == Primitive::AllGather ? own_block(Buffer::Output) : shared;
    memory.output = call_.primitive == Primitive::ReduceScatter ? own_block(Buffer::Input) : shared;
  } else {
    memory.input_memory.resize(num_input);
    memory.output_memory.resize(num_output);
    memory.input = memory.input_memory.data();
    memory.output = memory.output_memory.data();
  }
  const bool root = rank == call_.root;
  memory.input_count = call_.primitive == Primitive::Broadcast && !root ? 0 : num_input;
  memory.output_count = call_.primitive == Primitive::Reduce && !root ? 0 : num_output;
  for (size_t i = 0; i < memory.input_count; ++i) {
    memory.input[i].ranks.set(static_cast<size_t>(rank));
    memory.input[i].index = i;
  }
  for (const auto& pass : passes_) {
    const Schedule& schedule = pass[static_cast<size_t>(rank)];
    memory.scratch.resize(std::max(memory.scratch.size(), schedule.scratch_count));
    memory.accum.resize(std::max(memory.accum.size(), schedule.accum_count));
  }
}

void Replay::run(Order order) {
  check_all_steps();
  for (auto& cursors : cursors_) {
    for (Cursor& cursor : cursors) settle(cursor);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < call_.size; ++i) {
      moved |= run_rank(order == Order::RanksReversed ? call_.size - 1 - i : i, order);
    }
  }
  check_all_done();
  check_nothing_left();
  for (int rank = 0; rank < call_.size; ++rank) check_results(rank);
}

bool Replay::run_rank(int rank, Order order) {
  std::vector<Cursor>& cursors = cursors_[static_cast<size_t>(rank)];
  bool moved = false;
  for (size_t i = 0; i < cursors.size(); ++i) {
    Cursor& cursor = cursors[order == Order::ChannelsDown ? cursors.size() - 1 - i : i];
    while (advance(cursor)) {
      moved = true;
      if (order == Order::Alternating) break;
    }
  }
  return moved;
}

const Schedule& Replay::schedule_at(const Cursor& at) const {
  return passes_[at.pass][static_cast<size_t>(at.rank)];
}

/// Puts the cursor on its channel's next step with slices left; false when there is none in any pass.
bool Replay::settle(Cursor& cursor) const {
  for (; cursor.pass < passes_.size(); ++cursor.pass, cursor.step = 0, cursor.slice = 0) {
    const std::vector<Step>& steps = schedule_at(cursor).steps;
    for (; cursor.step < steps.size(); ++cursor.step, cursor.slice = 0) {
      const Step& step = steps[cursor.step];
      if (step.channel == cursor.channel && cursor.slice * slot_elements_ < step.count()) return true;
    }
  }
  return false;
}

bool Replay::advance(Cursor& cursor) {
  if (cursor.pass == passes_.size()) return false;
  const Step& step = step_at(cursor);
  if (step.after != kNoStep) {
    const size_t awaited = static_cast<size_t>(step.after);
    const size_t channel = static_cast<size_t>(schedule_at(cursor).steps[awaited].channel);
    const Cursor& other = cursors_[static_cast<size_t>(cursor.rank)][channel];
    const auto place = [](size_t pass, size_t s, size_t slice) { return std::tuple(pass, s, slice); };
    if (place(other.pass, other.step, other.slice) <= place(cursor.pass, awaited, cursor.slice)) return false;
  }
  Link* from = step.recv_peer == kNoPeer ? nullptr : &link(step.recv_peer, cursor.rank, cursor.channel);
  Link* to = step.send_peer == kNoPeer ? nullptr : &link(cursor.rank, step.send_peer, cursor.channel);
  if (from != nullptr && from->head == from->tail) return false;
  if (to != nullptr && to->tail - to->head == num_slots_) return false;
  move_slice(cursor, step, from, to);
  ++cursor.slice;
  settle(cursor);
  return true;
}

void Replay::begin_event(const Cursor& at, const Step& step, Link* from) {
  races_.begin_event(actor(at));
  if (from != nullptr) races_.join(actor(at), from->messages[from->head % num_slots_].clock);
  if (step.after == kNoStep) return;
  races_.join(actor(at), awaited_clocks_.at({at.rank, at.pass, static_cast<size_t>(step.after), at.slice}));
}

void Replay::move_slice(const Cursor& at, const Step& step, Link* from, Link* to) {
  begin_event(at, step, from);
  const size_t first = at.slice * slot_elements_;
  const size_t count = std::min(slot_elements_, step.count() - first);
  const Symbol* received = nullptr;
  if (from != nullptr) {
    const size_t slot = from->head % num_slots_;
    const Message& message = from->messages[slot];
    if (message.count != count) {
      fail(Fault::SizeMismatch, at,
           "expects " + std::to_string(count) + " elements, got " + std::to_string(message.count));
    }
    received = &from->symbols[slot * slot_elements_];
    check_receive_in_place(at, step, message);
  }
  Symbol* sent = nullptr;
  if (to != nullptr) {
    to->symbols.resize(num_slots_ * slot_elements_);
    to->messages.resize(num_slots_);
    sent = &to->symbols[to->tail % num_slots_ * slot_elements_];
  }
  for (size_t i = 0; i < count; ++i) {
    const Symbol value = value_of(at, step, received == nullptr ? nullptr : received + i, first + i);
    if (step.dst.used) write(at, step.dst, first + i, value);
    if (sent != nullptr) sent[i] = value;
  }
  if (from != nullptr) ++from->head;
  if (to != nullptr) {
    for (size_t i = 0; step.lands.used && i < count; ++i) {
      check_access(at, step.send_peer, step.lands, first + i, true);
    }
    to->messages[to->tail % num_slots_] = {count, at, races_.clock(actor(at))};
    ++to->tail;
    sent_elements_[static_cast<size_t>(at.rank)] += count;
    if (call_.topology != nullptr) {
      const auto link_class = static_cast<size_t>(call_.topology->link(at.rank, step.send_peer));
      sent_by_link_[static_cast<size_t>(at.rank)][link_class] += count;
    }
  }
  if (num_channels_ > 1) awaited_clocks_[{at.rank, at.pass, at.step, at.slice}] = races_.clock(actor(at));
}

/// What the sender promised of a message that does not go through a slot.
void Replay::check_receive_in_place(const Cursor& at, const Step& step, const Message& message) {
  const Step& sending = step_at(message.sender);
  const size_t begin = message.sender.slice * slot_elements_;
  if (sending.stays) {
    const Slice& lent = sending.dst.used ? sending.dst : sending.src;
    for (size_t i = 0; i < message.count; ++i) check_access(at, message.sender.rank, lent, begin + i, false);
  }
  if (!sending.lands.used) return;
  const bool copies = step.dst.used && step.dst.buffer == Buffer::Output && !step.reduce && !step.finish;
  if (!copies || step.dst.offset + at.slice * slot_elements_ != sending.lands.offset + begin) {
    fail(Fault::WrongLanding, at,
         "rank " + std::to_string(message.sender.rank) + " would write to Output[" +
             std::to_string(sending.lands.offset + begin) + "...] instead");
  }
}

/// That what `at` does to an element of `owner`'s memory is ordered against what others do to it.
void Replay::check_access(const Cursor& at, int owner, const Slice& slice, size_t element, bool writes) {
  const size_t number = element_number(owner, element_of({owner, at.channel, at.pass}, slice, element));
  const bool ordered = writes ? races_.write(actor(at), number) : races_.read(actor(at), number);
  if (ordered) return;
  fail(Fault::Race, at,
       std::string(writes ? "writes" : "reads") + " element " + std::to_string(slice.offset + element) + " of rank " +
           std::to_string(owner) + ", which nothing orders against another access to it");
}

size_t Replay::element_number(int rank, const Symbol& symbol) const {
  const Memory& memory = memory_[static_cast<size_t>(rank)];
  size_t first = memory.first_element;
  for (const auto* part : {&memory.input_memory, &memory.output_memory, &memory.scratch, &memory.accum}) {
    const auto offset = &symbol - part->data();
    if (offset >= 0 && static_cast<size_t>(offset) < part->size()) return first + static_cast<size_t>(offset);
    first += part->size();
  }
  SIXFOLD_CHECK(false, "a symbol lies in its rank's memory");
  return 0;
}

Symbol Replay::value_of(const Cursor& at, const Step& step, const Symbol* received, size_t element) {
  Symbol value;
  if (!step.reduce) {
    value = received != nullptr ? *received : read(at, step.src, element);
  } else {
    const Symbol& other = received != nullptr ? *received : read(at, step.dst, element);
    value = add(at, other, read(at, step.src, element));
  }
  if (step.finish) {
    if (value.finished) fail(Fault::Unfinished, at, "scales element " + std::to_string(value.index) + " a second time");
    value.finished = true;
  }
  return value;
}

Symbol& Replay::element_of(const Cursor& at, const Slice& slice, size_t element) {
  Memory& memory = memory_[static_cast<size_t>(at.rank)];
  const size_t i = slice.offset + element;
  switch (slice.buffer) {
    case Buffer::Input:
      return memory.input[i];
    case Buffer::Output:
      return memory.output[i];
    case Buffer::Scratch:
      return memory.scratch[i];
    case Buffer::Accum:
      break;
  }
  return memory.accum[i];
}

void Replay::write(const Cursor& at, const Slice& slice, size_t element, const Symbol& value) {
  check_access(at, at.rank, slice, element, true);
  Symbol& stored = element_of(at, slice, element);
  stored = value;
  stored.pass = static_cast<int>(at.pass);
}

const Symbol& Replay::read(const Cursor& at, const Slice& slice, size_t element) {
  check_access(at, at.rank, slice, element, false);
  const Symbol& symbol = element_of(at, slice, element);
  const bool of_a_pass = slice.buffer == Buffer::Scratch || slice.buffer == Buffer::Accum;
  if (symbol.ranks.none() || (of_a_pass && symbol.pass != static_cast<int>(at.pass))) {
    fail(Fault::ReadBeforeWrite, at, "reads element " + std::to_string(slice.offset + element) + ", not written yet");
  }
  return symbol;
}

Symbol Replay::add(const Cursor& at, const Symbol& a, const Symbol& b) const {
  if (a.index != b.index) {
    fail(Fault::WrongElement, at, "adds element " + std::to_string(a.index) + " to element " + std::to_string(b.index));
  }
  if ((a.ranks & b.ranks).any()) {
    const RankSet twice = a.ranks & b.ranks;
    size_t rank = 0;
    while (!twice[rank]) ++rank;
    fail(Fault::DoubleAdd, at,
         "adds the contribution of rank " + std::to_string(rank) + " to element " + std::to_string(a.index) + " again");
  }
  if (a.finished || b.finished) {
    fail(Fault::Unfinished, at, "adds to element " + std::to_string(a.index) + " after it was scaled");
  }
  Symbol sum = a;
  sum.ranks |= b.ranks;
  return sum;
}

Replay::Link& Replay::link(int sender, int receiver, int channel) {
  return links_[static_cast<size_t>((sender * call_.size + receiver) * num_channels_ + channel)];
}

void Replay::fail(Fault fault, const Cursor& at, const std::string& what) const {
  throw FaultFound{fault, "rank " + std::to_string(at.rank) + ", channel " + std::to_string(at.channel) + ", pass " +
                              std::to_string(at.pass) + ", step " + std::to_string(at.step) + " (" +
                              to_string(step_at(at)) + "): " + what};
}

}  // namespace sixfold::comm
