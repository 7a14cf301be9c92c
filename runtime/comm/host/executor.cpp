#include "runtime/comm/host/executor.h"

#include <algorithm>

#include "runtime/comm/observe/clock.h"
#include "runtime/comm/observe/comm_table.h"

namespace sixfold::comm {

namespace {

/// An AllReduce in place overwrites what it has lent, and it is the reader that does so.
bool lending_pays(const Call& call, size_t element_bytes, size_t min_lend_bytes) {
  const bool returns = call.primitive == Primitive::AllReduce && call.in_place;
  return returns || operation_bytes(call, element_bytes) >= min_lend_bytes;
}

}  // namespace

ScheduleRun::ScheduleRun(GroupLinks& links, const Plan& plan, uint64_t sequence, const Signature& signature,
                         const void* input, void* output, Workspace& workspace, const Fail& fail)
    : links_(links),
      plan_(plan),
      sequence_(sequence),
      signature_(signature),
      signature_words_(signature.pack()),
      input_(input),
      output_(output),
      workspace_(workspace),
      fail_(fail),
      element_bytes_(dtype_bytes(signature.dtype)),
      accum_bytes_(dtype_bytes(kernels::accum_dtype(signature.dtype))),
      slice_elements_(links.options().slot_bytes / element_bytes_),
      lands_(operation_bytes(plan.call(), element_bytes_) >= links.options().min_in_place_bytes),
      lends_(lands_ && lending_pays(plan.call(), element_bytes_, links.options().min_lend_bytes)),
      done_(plan.num_passes() == 0) {
  SIXFOLD_CHECK_LE(plan.num_channels(), kNumScheduleChannels, "channels of a schedule");
}

/// Not before the run's turn: the run before it uses the workspace.
void ScheduleRun::begin() {
  const auto grow = [](std::vector<std::byte>& buffer, size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
  };
  grow(workspace_.scratch, plan_.scratch_count() * element_bytes_);
  grow(workspace_.accum, plan_.accum_count() * accum_bytes_);
  workspace_.draining.clear();
  begun_ = true;
}

bool ScheduleRun::settle(int channel, Cursor& cursor) {
  for (; cursor.pass < plan_.num_passes(); ++cursor.pass, cursor.step = cursor.slice = 0) {
    const std::vector<Step>& steps = plan_.pass(cursor.pass).schedule->steps;
    for (; cursor.step < steps.size(); ++cursor.step, cursor.slice = 0) {
      const Step& step = steps[cursor.step];
      if (step.channel == channel && cursor.slice * slice_elements_ < step.count()) return true;
    }
  }
  cursor.done = true;
  return false;
}

bool ScheduleRun::advance() {
  if (done_) return false;
  if (!begun_) begin();
  bool moved = false, all_done = true;
  for (int channel = 0; channel < plan_.num_channels(); ++channel) {
    Cursor& cursor = cursors_[static_cast<size_t>(channel)];
    while (!cursor.done && advance_slice(channel, cursor)) moved = true;
    all_done &= cursor.done;
  }
  done_ = all_done && all_drained();
  return moved || done_;
}

bool ScheduleRun::is_done(const Cursor& cursor, const Schedule& schedule, size_t step) const {
  // Steps of a channel run in order, so its cursor tells: it is at the first slice that is not done.
  const Cursor& other = cursors_[static_cast<size_t>(schedule.steps[step].channel)];
  if (other.done || other.pass != cursor.pass) return other.done || other.pass > cursor.pass;
  return other.step > step || (other.step == step && other.slice > cursor.slice);
}

bool ScheduleRun::advance_slice(int channel, Cursor& cursor) {
  if (!settle(channel, cursor)) return false;
  const Plan::Pass current = plan_.pass(cursor.pass);
  const Step& step = current.schedule->steps[cursor.step];
  if (step.after != kNoStep && !is_done(cursor, *current.schedule, static_cast<size_t>(step.after))) return false;
  if (step.recv_peer != kNoPeer && !GroupLinks::arrived(links_.from(step.recv_peer, channel))) return false;
  if (step.send_peer != kNoPeer && !links_.to(step.send_peer, channel).ready()) return false;
  const size_t offset = cursor.slice * slice_elements_;
  move(step, current.shift, offset, std::min(slice_elements_, step.count() - offset));
  ++cursor.slice;
  settle(channel, cursor);
  return true;
}

void ScheduleRun::move(const Step& step, size_t shift, size_t offset, size_t count) {
  const size_t bytes = count * element_bytes_;
  RecvEnd* from = step.recv_peer == kNoPeer ? nullptr : &links_.from(step.recv_peer, step.channel);
  SendEnd* to = step.send_peer == kNoPeer ? nullptr : &links_.to(step.send_peer, step.channel);

  kernels::FusedOperands operands;
  if (from != nullptr) operands.received = arrived(step, shift, offset, bytes, *from);
  if (step.src.used) {
    operands.local = address(step.src, shift, offset);
    operands.local_is_accum = step.src.buffer == Buffer::Accum;
  }
  if (step.dst.used) {
    operands.dst = address(step.dst, shift, offset);
    operands.dst_is_accum = step.dst.buffer == Buffer::Accum;
  }
  if (step.reduce && from == nullptr) {
    // op(dst, src): the fused kernel takes its second operand as if it had been received.
    SIXFOLD_CHECK(!operands.local_is_accum, "a local reduction reads Accum only as its destination");
    operands.received = operands.local;
    operands.local = operands.dst;
    operands.local_is_accum = operands.dst_is_accum;
  }
  Target target;
  if (to != nullptr) target = choose_target(step, shift, offset, bytes, *to);
  operands.send = target.address;
  const bool scales = step.finish && signature_.op == ReduceOp::Avg;
  const float scale = scales ? 1.0f / static_cast<float>(plan_.call().size) : 1.0f;
  if (operands.dst != nullptr || operands.send != nullptr) {
    kernels::fused_reduce(signature_.dtype, signature_.op, operands, count, scale);
  }
  if (to != nullptr) {
    to->header() = {sequence_,
                    {signature_words_[0], signature_words_[1]},
                    bytes,
                    target.place,
                    links_.arrives_ns(step.send_peer, bytes)};
    to->commit();
    sent_.add(bytes, links_.link_class(step.send_peer));
  }
  if (from != nullptr) from->release();
}

ScheduleRun::Target ScheduleRun::choose_target(const Step& step, size_t shift, size_t offset, size_t bytes,
                                               SendEnd& to) {
  if (!links_.shares_memory(step.send_peer)) {
    drain_at_end(to);
    return {to.slot(), kInSlot};
  }
  Target target;
  if (lands_ && land(step, shift, offset, bytes, target)) return target;
  if (lends_ && lend(step, shift, offset, bytes, to, target)) return target;
  return {to.slot(), kInSlot};
}

void ScheduleRun::drain_at_end(SendEnd& to) {
  if (std::find(workspace_.draining.begin(), workspace_.draining.end(), &to) == workspace_.draining.end())
    workspace_.draining.push_back(&to);
}

bool ScheduleRun::lend(const Step& step, size_t shift, size_t offset, size_t bytes, SendEnd& to, Target& target) {
  if (!step.stays) return false;
  // A value that is kept is lent where it is kept.
  const uint64_t word = links_.word_of(address(step.dst.used ? step.dst : step.src, shift, offset), bytes);
  if (word == 0) return false;
  drain_at_end(to);
  target = {nullptr, word};
  return true;
}

bool ScheduleRun::land(const Step& step, size_t shift, size_t offset, size_t bytes, Target& target) {
  if (!step.lands.used) return false;
  const uint64_t output = links_.signatures(step.send_peer).output_of(sequence_, signature_words_);
  if (output == 0) return false;
  std::byte* landing =
      links_.reach(step.send_peer, output, (step.lands.offset + shift + offset) * element_bytes_, bytes);
  target = {landing, kLanded};
  return landing != nullptr;
}

const std::byte* ScheduleRun::arrived(const Step& step, size_t shift, size_t offset, size_t bytes,
                                      const RecvEnd& from) {
  const SlotHeader& header = from.header();
  check_arrived(step.recv_peer, header, bytes);
  if (!links_.shares_memory(step.recv_peer)) hear(step.recv_peer);
  if (header.place == kInSlot) return from.slot();
  if (header.place == kLanded) return address(step.dst, shift, offset);
  const std::byte* lent = links_.reach(step.recv_peer, header.place, 0, bytes);
  SIXFOLD_CHECK(lent != nullptr, "a peer lends what lies in its heap");
  return lent;
}

void ScheduleRun::hear(int peer) {
  workspace_.heard.resize(static_cast<size_t>(links_.size()));
  uint64_t& heard = workspace_.heard[static_cast<size_t>(peer)];
  if (heard == sequence_ + 1) return;
  heard = sequence_ + 1;
  last_heard_s_ = seconds_now();
}

/// True when nobody reads in this rank's buffers any more, and all that goes to other hosts has left.
bool ScheduleRun::all_drained() {
  return std::all_of(workspace_.draining.begin(), workspace_.draining.end(), [](SendEnd* to) { return to->drained(); });
}

void ScheduleRun::check_arrived(int peer, const SlotHeader& header, size_t bytes) const {
  const bool same = header.sequence == sequence_ && header.signature[0] == signature_words_[0] &&
                    header.signature[1] == signature_words_[1] && header.bytes == bytes;
  if (same) [[likely]]
    return;
  const std::string known = links_.disagreement(peer);
  if (!known.empty()) fail_(known);
  fail_("rank " + std::to_string(peer) + " of the group sent " + std::to_string(header.bytes) +
        " bytes of operation #" + std::to_string(header.sequence) + " (" +
        to_string(Signature::unpack({header.signature[0], header.signature[1]})) + "), this rank expects " +
        std::to_string(bytes) + " bytes of operation #" + std::to_string(sequence_) + " (" + to_string(signature_) +
        ")");
}

std::byte* ScheduleRun::address(const Slice& slice, size_t shift, size_t offset) const {
  const size_t element = slice.offset + offset;
  switch (slice.buffer) {
    case Buffer::Input:
      return static_cast<std::byte*>(const_cast<void*>(input_)) + (element + shift) * element_bytes_;
    case Buffer::Output:
      return static_cast<std::byte*>(output_) + (element + shift) * element_bytes_;
    case Buffer::Scratch:
      return workspace_.scratch.data() + element * element_bytes_;
    case Buffer::Accum:
      return workspace_.accum.data() + element * accum_bytes_;
  }
  SIXFOLD_CHECK(false, "unknown buffer");
  return nullptr;
}

}  // namespace sixfold::comm
