#include "runtime/comm/cuda/lowered_check.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/comm/schedule/races.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

struct FaultFound {
  LoweredFault fault;
  std::string detail;
};

/// Elements of a rank's buffers, numbered through all ranks; Input and Output share numbers where they share memory.
class ElementNumbers {
 public:
  ElementNumbers(const Lowered& lowered, Call call, const std::vector<bool>& in_place) {
    for (call.rank = 0; call.rank < call.size; ++call.rank) {
      const auto r = static_cast<size_t>(call.rank);
      const size_t input = input_count(call), output = output_count(call);
      std::array<size_t, 4> first{};
      if (in_place[r]) {
        first[0] =
            next_ + (call.primitive == Primitive::AllGather ? block_range(call, Buffer::Output, call.rank).begin : 0);
        first[1] = next_ +
                   (call.primitive == Primitive::ReduceScatter ? block_range(call, Buffer::Input, call.rank).begin : 0);
        next_ += std::max(input, output);
      } else {
        first[0] = next_;
        first[1] = next_ + input;
        next_ += input + output;
      }
      first[2] = next_;
      first[3] = next_ + lowered.ranks[r].scratch_count;
      next_ = first[3] + lowered.ranks[r].accum_count;
      first_.push_back(first);
    }
  }
  size_t count() const { return next_; }
  size_t of(int rank, unsigned buffer, uint64_t element) const {
    return first_[static_cast<size_t>(rank)][buffer] + element;
  }

 private:
  std::vector<std::array<size_t, 4>> first_;
  size_t next_ = 0;
};

class LoweredReplay {
 public:
  LoweredReplay(const Lowered& lowered, const ElementNumbers* numbers);
  void run();

 private:
  struct Block {
    int rank = 0, channel = 0, split = 0;
    size_t pass = 0, instruction = 0;  // pass: index into replayed_
    size_t slice = 0;
    std::optional<ChunkWalk> walk;  // of the instruction; none: not begun, or past the end
  };
  struct Message {
    std::vector<uint64_t> counts;  // of its pieces
    RaceDetector::Clock clock;
  };
  using LinkKey = std::tuple<int, int, int, int>;  // sender, receiver, channel, split

  bool at_end(const Block& block) const { return block.pass == replayed_.size(); }
  const LoweredRank& rank_of(const Block& block) const { return lowered_.ranks[static_cast<size_t>(block.rank)]; }
  const LoweredPass& pass_of(const Block& block) const {
    return rank_of(block).passes[lowered_.stored_pass(replayed_[block.pass])];
  }
  const std::vector<Instruction>& list_of(const Block& block) const {
    return pass_of(block).lists[static_cast<size_t>(block.channel)];
  }
  Block& block(int rank, int channel, int split) {
    const int per_rank = lowered_.num_channels * lowered_.shape.num_splits;
    return blocks_[static_cast<size_t>(rank * per_rank + channel * lowered_.shape.num_splits + split)];
  }
  size_t actor(const Block& b) const { return static_cast<size_t>(&b - blocks_.data()); }

  void settle(Block& block);
  bool advance(Block& block);
  void move_slice(Block& block, const Instruction& instruction, std::deque<Message>* from, std::deque<Message>* to);
  void touch(const Block& block, unsigned buffer, uint32_t chunk, const ChunkWalk::Piece& piece, bool writes);
  void check_end();
  std::string describe(const Block& block) const;
  [[noreturn]] void fail(LoweredFault fault, const Block& at, const std::string& what) const {
    throw FaultFound{fault, describe(at) + ": " + what};
  }

  const Lowered& lowered_;
  const ElementNumbers* numbers_;  // nullptr: elements are not looked at
  std::vector<size_t> replayed_;   // numbers of the passes
  std::vector<Block> blocks_;
  std::map<LinkKey, std::deque<Message>> links_;
  RaceDetector races_;
  /// Clocks of published slices, by block, pass, instruction and slice.
  std::map<std::tuple<size_t, size_t, size_t, size_t>, RaceDetector::Clock> published_;
};

LoweredReplay::LoweredReplay(const Lowered& lowered, const ElementNumbers* numbers)
    : lowered_(lowered), numbers_(numbers) {
  for (size_t pass = 0; pass < lowered.num_passes; ++pass) {
    if (!lowered.alike || pass < 2 || pass + 1 == lowered.num_passes) replayed_.push_back(pass);
  }
  for (size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
    for (int channel = 0; channel < lowered.num_channels; ++channel) {
      for (int split = 0; split < lowered.shape.num_splits; ++split) {
        Block& made = blocks_.emplace_back();
        made.rank = static_cast<int>(rank);
        made.channel = channel;
        made.split = split;
      }
    }
  }
  if (numbers != nullptr) races_ = RaceDetector(blocks_.size(), numbers->count());
}

void LoweredReplay::run() {
  for (Block& block : blocks_) settle(block);
  for (bool moved = true; moved;) {
    moved = false;
    for (Block& block : blocks_) {
      while (advance(block)) moved = true;
    }
  }
  check_end();
}

/// To the next instruction of which the block moves anything.
void LoweredReplay::settle(Block& block) {
  if (block.walk && !block.walk->done()) return;
  const bool begun = block.walk.has_value();
  block.walk.reset();
  if (begun) ++block.instruction;
  for (; !at_end(block); ++block.pass, block.instruction = 0) {
    const std::vector<Instruction>& list = list_of(block);
    for (; block.instruction < list.size(); ++block.instruction) {
      block.slice = 0;
      block.walk = walk_of(lowered_.shape, pass_of(block), list[block.instruction], block.split);
      if (!block.walk->done()) return;
    }
    block.walk.reset();
  }
}

bool LoweredReplay::advance(Block& at) {
  if (at_end(at)) return false;
  const Instruction& instruction = list_of(at)[at.instruction];
  const auto channel = static_cast<size_t>(at.channel);
  const LoweredRank& rank = rank_of(at);
  if (instruction.awaited != kNoInstruction) {
    const Block& other = block(at.rank, rank.awaits[channel], at.split);
    const std::tuple reached(other.pass, other.instruction, other.slice);
    if (reached <= std::tuple(at.pass, size_t{instruction.awaited}, at.slice)) return false;
  }
  std::deque<Message>*from = nullptr, *to = nullptr;
  if (instruction.op & kReceives) {
    from = &links_[{rank.recv_peers[channel][instruction.recv], at.rank, at.channel, at.split}];
    if (from->empty()) return false;
  }
  if (instruction.op & kSends) {
    to = &links_[{at.rank, rank.send_peers[channel][instruction.send], at.channel, at.split}];
    if (to->size() == static_cast<size_t>(lowered_.shape.num_slots)) return false;
  }
  move_slice(at, instruction, from, to);
  settle(at);
  return true;
}

void LoweredReplay::move_slice(Block& at, const Instruction& instruction, std::deque<Message>* from,
                               std::deque<Message>* to) {
  if (numbers_ != nullptr) {
    races_.begin_event(actor(at));
    if (from != nullptr) races_.join(actor(at), from->front().clock);
    if (instruction.awaited != kNoInstruction) {
      const Block& other = block(at.rank, rank_of(at).awaits[static_cast<size_t>(at.channel)], at.split);
      races_.join(actor(at), published_.at({actor(other), at.pass, instruction.awaited, at.slice}));
    }
  }
  Message message;
  for (uint32_t filled = 0; !at.walk->done() && filled < lowered_.shape.slot_elements;) {
    const ChunkWalk::Piece piece = at.walk->take(filled, lowered_.shape.slot_elements);
    message.counts.push_back(piece.count);
    if (numbers_ == nullptr) continue;
    const unsigned destination = instruction.buffers >> 4;
    if (instruction.op & kReadsSource) touch(at, instruction.buffers & 15u, instruction.source, piece, false);
    if ((instruction.op & kReduces) && from == nullptr) touch(at, destination, instruction.destination, piece, false);
    if (instruction.op & kStores) touch(at, destination, instruction.destination, piece, true);
  }
  if (from != nullptr) {
    if (from->front().counts != message.counts) fail(LoweredFault::SizeMismatch, at, "expects a message of other size");
    from->pop_front();
  }
  if (numbers_ != nullptr) {
    message.clock = races_.clock(actor(at));
    if (instruction.op & kPublishes) published_[{actor(at), at.pass, at.instruction, at.slice}] = message.clock;
  }
  if (to != nullptr) to->push_back(std::move(message));
  ++at.slice;
}

void LoweredReplay::touch(const Block& at, unsigned buffer, uint32_t chunk, const ChunkWalk::Piece& piece,
                          bool writes) {
  const bool moves_on = buffer <= static_cast<unsigned>(Buffer::Output);
  const uint64_t shift = moves_on ? lowered_.shift(replayed_[at.pass]) : 0;
  const uint64_t first = pass_of(at).cuts[chunk + piece.chunk] + piece.offset + shift;
  for (uint64_t i = first; i < first + piece.count; ++i) {
    const size_t number = numbers_->of(at.rank, buffer, i);
    const bool ordered = writes ? races_.write(actor(at), number) : races_.read(actor(at), number);
    if (ordered) continue;
    fail(LoweredFault::MissingDependency, at,
         std::string(writes ? "writes" : "reads") + " element " + std::to_string(i) + " of buffer " +
             std::to_string(buffer) + ", which nothing orders against another block's access to it");
  }
}

void LoweredReplay::check_end() {
  std::string stuck;
  for (const Block& block : blocks_) {
    if (!at_end(block)) stuck += (stuck.empty() ? "" : "; ") + describe(block);
  }
  if (!stuck.empty()) throw FaultFound{LoweredFault::Deadlock, "no block can go on: " + stuck};
  for (const auto& [key, messages] : links_) {
    const auto& [sender, receiver, channel, split] = key;
    if (messages.empty()) continue;
    throw FaultFound{LoweredFault::Leftover, std::to_string(messages.size()) + " messages from rank " +
                                                 std::to_string(sender) + " that rank " + std::to_string(receiver) +
                                                 " does not receive, channel " + std::to_string(channel) + ", split " +
                                                 std::to_string(split)};
  }
}

std::string LoweredReplay::describe(const Block& block) const {
  return "rank " + std::to_string(block.rank) + ", channel " + std::to_string(block.channel) + ", split " +
         std::to_string(block.split) + ", pass " + std::to_string(replayed_[block.pass]) + ", instruction " +
         std::to_string(block.instruction) + " (" + to_string(list_of(block)[block.instruction]) + "), slice " +
         std::to_string(block.slice);
}

LoweredReport replay(const Lowered& lowered, const ElementNumbers* numbers) {
  try {
    LoweredReplay(lowered, numbers).run();
    return {};
  } catch (const FaultFound& found) {
    return {found.fault, found.detail};
  }
}

}  // namespace

LoweredReport check_lowered(const Lowered& lowered) {
  return replay(lowered, nullptr);
}

LoweredReport check_lowered(const Lowered& lowered, const Call& call, const std::vector<bool>& in_place) {
  const ElementNumbers numbers(lowered, call, in_place);
  return replay(lowered, &numbers);
}

}  // namespace sixfold::comm
