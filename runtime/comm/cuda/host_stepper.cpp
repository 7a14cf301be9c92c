#include "runtime/comm/cuda/host_stepper.h"

#include <algorithm>
#include <tuple>

#include "runtime/core/error.h"

namespace sixfold::comm {

HostStepper::HostStepper(const ProgramImage& image, LinkOf link_of, Issue issue)
    : image_(image), link_of_(std::move(link_of)), issue_(std::move(issue)) {
  SIXFOLD_CHECK_EQ(image.program.num_splits, 1u, "the host steps through programs of one split");
  channels_.resize(image.program.num_channels);
  for (size_t i = 0; i < channels_.size(); ++i) {
    channels_[i].number = static_cast<uint32_t>(i);
    if (image.program.num_passes > 0) settle(channels_[i]);
  }
}

const InstructionList& HostStepper::list_of(const Channel& channel) const {
  const RankProgram& program = image_.program;
  const bool last = channel.pass + 1 == program.num_passes;
  const uint64_t stored = !program.alike ? channel.pass : (last ? program.num_stored_passes - 1 : 0);
  return image_.lists[stored * program.num_channels + channel.number];
}

const Instruction& HostStepper::instruction_of(const Channel& channel) const {
  return image_.instructions[list_of(channel).first + channel.instruction];
}

/// To the next instruction that moves anything.
void HostStepper::settle(Channel& channel) {
  if (channel.walk && !channel.walk->done()) return;
  if (channel.walk) ++channel.instruction;
  for (; channel.pass < image_.program.num_passes; ++channel.pass, channel.instruction = 0) {
    for (; channel.instruction < list_of(channel).count; ++channel.instruction) {
      begin(channel);
      if (!channel.walk->done()) return;
    }
  }
  channel.walk.reset();
}

void HostStepper::begin(Channel& channel) {
  const Instruction& in = instruction_of(channel);
  const uint16_t first = in.op & kReadsSource ? in.source : in.destination;
  channel.slice = 0;
  channel.walk.emplace(image_.cuts.data() + list_of(channel).first_cut + first, in.num_chunks, 0, 1,
                       image_.program.granule);
  channel.from = in.op & kReceives ? link_of_(channel.number, in.recv, false) : Link{};
  channel.to = in.op & kSends ? link_of_(channel.number, in.send, true) : Link{};
}

bool HostStepper::is_ready(const Channel& channel) const {
  const Instruction& in = instruction_of(channel);
  if (in.awaited != kNoInstruction) {
    const Channel& other = channels_[static_cast<size_t>(image_.awaits[channel.number])];
    const std::tuple reached(other.pass, other.instruction, other.slice);
    if (other.walk && reached <= std::tuple(channel.pass, in.awaited, channel.slice)) return false;
  }
  const Link &from = channel.from, &to = channel.to;
  if (from.tail != nullptr && from.tail->load(std::memory_order_acquire) < *from.moved + 1) return false;
  if (to.head == nullptr) return true;
  return to.head->load(std::memory_order_acquire) + image_.program.num_slots >= *to.moved + 1;
}

bool HostStepper::advance(Channel& channel) {
  if (!channel.walk) return false;
  if (!channel.moving) {
    if (!is_ready(channel)) return false;
    channel.moving = issue_({channel.pass, channel.number, channel.instruction, channel.slice,
                             channel.from.moved != nullptr ? *channel.from.moved : 0,
                             channel.to.moved != nullptr ? *channel.to.moved : 0});
    return true;
  }
  if (!channel.moving->done()) return false;
  channel.moving.reset();
  if (channel.to.tail != nullptr) channel.to.tail->store(++*channel.to.moved, std::memory_order_release);
  if (channel.from.head != nullptr) channel.from.head->store(++*channel.from.moved, std::memory_order_release);
  const uint32_t capacity = image_.program.slot_elements;
  for (uint32_t filled = 0; !channel.walk->done() && filled < capacity;) channel.walk->take(filled, capacity);
  ++channel.slice;
  settle(channel);
  return true;
}

bool HostStepper::advance() {
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    for (Channel& channel : channels_) again |= advance(channel);
    moved |= again;
  }
  return moved;
}

bool HostStepper::done() const {
  return std::none_of(channels_.begin(), channels_.end(), [](const Channel& channel) { return channel.walk; });
}

}  // namespace sixfold::comm
