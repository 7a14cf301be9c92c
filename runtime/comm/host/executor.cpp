#include "runtime/comm/host/executor.h"

#include <algorithm>

namespace sixfold::comm {

ScheduleRun::ScheduleRun(GroupLinks& links, const Call& call, ScheduleSource source, size_t max_pass_count,
                         uint64_t sequence, const Signature& signature, const ExecutionBuffers& buffers, Fail fail)
    : links_(links),
      call_(call),
      source_(std::move(source)),
      max_pass_count_(max_pass_count),
      sequence_(sequence),
      signature_(signature),
      signature_words_(signature.pack()),
      buffers_(buffers),
      fail_(std::move(fail)),
      element_bytes_(dtype_bytes(signature.dtype)),
      accum_bytes_(dtype_bytes(kernels::accum_dtype(signature.dtype))),
      slice_elements_(links.options().slot_bytes / element_bytes_) {
  if (num_passes() == 0) {
    done_ = true;
    return;
  }
  cursors_.resize(static_cast<size_t>(pass(0).schedule.num_channels));
}

size_t ScheduleRun::num_passes() const {
  return (call_.count + max_pass_count_ - 1) / max_pass_count_;
}

ScheduleRun::Pass& ScheduleRun::pass(size_t index) {
  while (first_pass_ + passes_.size() <= index) {
    Call call = call_;
    call.pass_offset = (first_pass_ + passes_.size()) * max_pass_count_;
    call.pass_count = std::min(max_pass_count_, call_.count - call.pass_offset);
    Pass next;
    next.schedule = source_(call);
    next.slices_done.assign(next.schedule.steps.size(), 0);
    const auto grow = [](std::vector<std::byte>& buffer, size_t bytes) {
      if (buffer.size() < bytes) buffer.resize(bytes);
    };
    // The first pass is the largest, so these do not move once slices point into them.
    grow(*buffers_.scratch, next.schedule.scratch_count * element_bytes_);
    grow(*buffers_.accum, next.schedule.accum_count * accum_bytes_);
    passes_.push_back(std::move(next));
  }
  return passes_[index - first_pass_];
}

void ScheduleRun::retire_passes() {
  size_t oldest = num_passes();
  for (const Cursor& cursor : cursors_) {
    if (!cursor.done) oldest = std::min(oldest, cursor.pass);
  }
  for (; first_pass_ < oldest && !passes_.empty(); ++first_pass_) passes_.pop_front();
}

bool ScheduleRun::settle(int channel, Cursor& cursor) {
  while (cursor.pass < num_passes()) {
    const Pass& current = pass(cursor.pass);
    for (; cursor.step < current.schedule.steps.size(); ++cursor.step, cursor.slice = 0) {
      const Step& step = current.schedule.steps[cursor.step];
      if (step.channel == channel && cursor.slice * slice_elements_ < step.count()) return true;
    }
    ++cursor.pass;
    cursor.step = cursor.slice = 0;
  }
  cursor.done = true;
  return false;
}

bool ScheduleRun::advance() {
  if (done_) return false;
  bool moved = false, all_done = true;
  for (size_t channel = 0; channel < cursors_.size(); ++channel) {
    Cursor& cursor = cursors_[channel];
    while (!cursor.done && advance_slice(static_cast<int>(channel), cursor)) moved = true;
    all_done &= cursor.done;
  }
  retire_passes();
  done_ = all_done && all_drained();
  return moved || done_;
}

bool ScheduleRun::advance_slice(int channel, Cursor& cursor) {
  if (!settle(channel, cursor)) return false;
  Pass& current = pass(cursor.pass);
  const Step& step = current.schedule.steps[cursor.step];
  if (step.after != kNoStep) {
    const size_t awaited = static_cast<size_t>(step.after);
    if (current.slices_done[awaited] <= cursor.slice) return false;
  }
  if (step.recv_peer != kNoPeer && !GroupLinks::arrived(links_.from(step.recv_peer, channel))) return false;
  if (step.send_peer != kNoPeer && !links_.to(step.send_peer, channel).ready()) return false;
  const size_t offset = cursor.slice * slice_elements_;
  move(step, offset, std::min(slice_elements_, step.count() - offset));
  current.slices_done[cursor.step] = ++cursor.slice;
  settle(channel, cursor);
  return true;
}

void ScheduleRun::move(const Step& step, size_t offset, size_t count) {
  const size_t bytes = count * element_bytes_;
  RecvEnd* from = step.recv_peer == kNoPeer ? nullptr : &links_.from(step.recv_peer, step.channel);
  SendEnd* to = step.send_peer == kNoPeer ? nullptr : &links_.to(step.send_peer, step.channel);

  kernels::FusedOperands operands;
  if (from != nullptr) operands.received = arrived(step, offset, bytes, *from);
  if (step.src.used) {
    operands.local = address(step.src, offset);
    operands.local_is_accum = step.src.buffer == Buffer::Accum;
  }
  if (step.dst.used) {
    operands.dst = address(step.dst, offset);
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
  if (to != nullptr) target = choose_target(step, offset, bytes, *to);
  operands.send = target.address;
  const bool scales = step.finish && signature_.op == ReduceOp::Avg;
  const float scale = scales ? 1.0f / static_cast<float>(call_.size) : 1.0f;
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
    sent_bytes_ += bytes;
  }
  if (from != nullptr) from->release();
}

ScheduleRun::Target ScheduleRun::choose_target(const Step& step, size_t offset, size_t bytes, SendEnd& to) {
  if (!links_.shares_memory(step.send_peer)) {
    drain_at_end(to);
    return {to.slot(), kInSlot};
  }
  if (bytes >= links_.options().min_in_place_bytes) {
    // A value that is worked out here is best written to both places at once; one that lies here is best left to the
    // receiver to fetch, so that the receivers share the work.
    const bool fresh = step.recv_peer != kNoPeer;
    Target target;
    const bool found = fresh ? land(step, offset, bytes, target) || lend(step, offset, bytes, to, target)
                             : lend(step, offset, bytes, to, target) || land(step, offset, bytes, target);
    if (found) return target;
  }
  return {to.slot(), kInSlot};
}

void ScheduleRun::drain_at_end(SendEnd& to) {
  if (std::find(draining_.begin(), draining_.end(), &to) == draining_.end()) draining_.push_back(&to);
}

bool ScheduleRun::lend(const Step& step, size_t offset, size_t bytes, SendEnd& to, Target& target) {
  if (!step.stays) return false;
  // A value that is kept is lent where it is kept.
  const uint64_t word = links_.word_of(address(step.dst.used ? step.dst : step.src, offset), bytes);
  if (word == 0) return false;
  drain_at_end(to);
  target = {nullptr, word};
  return true;
}

bool ScheduleRun::land(const Step& step, size_t offset, size_t bytes, Target& target) {
  if (!step.lands.used) return false;
  const uint64_t output = links_.signatures(step.send_peer).output_of(sequence_);
  if (output == 0) return false;
  std::byte* landing = links_.reach(step.send_peer, output, (step.lands.offset + offset) * element_bytes_, bytes);
  target = {landing, kLanded};
  return landing != nullptr;
}

const std::byte* ScheduleRun::arrived(const Step& step, size_t offset, size_t bytes, const RecvEnd& from) {
  const SlotHeader& header = from.header();
  check_arrived(step.recv_peer, header, bytes);
  if (header.place == kInSlot) return from.slot();
  if (header.place == kLanded) return address(step.dst, offset);
  const std::byte* lent = links_.reach(step.recv_peer, header.place, 0, bytes);
  SIXFOLD_CHECK(lent != nullptr, "a peer lends what lies in its heap");
  return lent;
}

/// True when nobody reads in this rank's buffers any more, and all that goes to other hosts has left.
bool ScheduleRun::all_drained() {
  return std::all_of(draining_.begin(), draining_.end(), [](SendEnd* to) { return to->drained(); });
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

std::byte* ScheduleRun::address(const Slice& slice, size_t offset) const {
  const size_t element = slice.offset + offset;
  switch (slice.buffer) {
    case Buffer::Input:
      return static_cast<std::byte*>(const_cast<void*>(buffers_.input)) + element * element_bytes_;
    case Buffer::Output:
      return static_cast<std::byte*>(buffers_.output) + element * element_bytes_;
    case Buffer::Scratch:
      return buffers_.scratch->data() + element * element_bytes_;
    case Buffer::Accum:
      return buffers_.accum->data() + element * accum_bytes_;
  }
  SIXFOLD_CHECK(false, "unknown buffer");
  return nullptr;
}

}  // namespace sixfold::comm
