// The interpreter: runs one block's instructions, on a GPU and in the host interpreter of the tests alike.
//
// Links are FIFOs of slots that lie on the receiver; the sender pushes. Flags are 64-bit counters that only grow, are
// never reset and live across launches, which take them up where the last one left them; nothing of a launch depends on
// its number, so a CUDA graph can replay it.
//
//   sender     awaits head > messages sent - num_slots, writes the slot, raises tail     (release)
//   receiver   awaits tail > messages received, reads the slot, raises head              (release)
//   channel    whose instruction awaits another channel's: a flag that counts slices, raised by the other one
//
// `Platform` is that of element_loops.h, and
//
//   bool await(const uint64_t* flag, uint64_t at_least, const WaitPlace&)   one thread: false when it gives up
//   bool agree(bool)                    all threads: what thread 0 passes; also a barrier of the block's memory
//   void sync()                         all threads: the same barrier
//   void raise(uint64_t* flag, uint64_t value)                              one thread: a release
#pragma once

#include "runtime/comm/cuda/element_loops.h"
#include "runtime/comm/cuda/instruction.h"
#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// One end of one link of one block. Flags have a 128-byte line each.
struct BlockLink {
  std::byte* slots = nullptr;  // num_slots of them, on the receiver
  uint64_t* tail = nullptr;    // on the receiver: messages sent
  uint64_t* head = nullptr;    // on the sender: messages received
  uint64_t* moved = nullptr;   // this end's own count of messages
};

/// What the blocks of one rank read. All memory is reached from where they run; the tables outlive the launch.
struct RankProgram {
  const Instruction* instructions = nullptr;
  const uint64_t* cuts = nullptr;
  const InstructionList* lists = nullptr;  // [stored pass][channel]
  const int32_t* awaits = nullptr;         // by channel, as LoweredRank::awaits
  const int32_t* awaited_by = nullptr;     // by channel: the one that awaits it; -1: none
  const BlockLink* sends = nullptr;        // [channel][split][connection], max_connections each
  const BlockLink* recvs = nullptr;
  uint64_t* published = nullptr;  // [channel][split] lines: what has been published for this channel
  uint64_t* seen = nullptr;       // [channel][split] lines: of it, by earlier launches
  std::byte* buffers[4] = {};     // as Buffer numbers them
  uint64_t num_passes = 0, pass_count = 0;
  uint32_t num_stored_passes = 0;
  bool alike = true;  // this and the three before as in Lowered
  uint32_t num_channels = 0, num_splits = 0, max_connections = 0;
  uint32_t num_slots = 0, slot_elements = 0, granule = 1;
  float scale = 1;  // of an average: 1 / size
};

inline constexpr uint32_t kFlagStride = 16;  // of 8 bytes: a line

enum class WaitKind : uint32_t { None, Message, Slot, Channel, Words };

/// Where a block waits, for who asks why it is stuck. Of Words (low_latency.h), `connection` is the rank they come
/// from.
struct WaitPlace {
  WaitKind kind = WaitKind::None;
  uint32_t channel = 0, split = 0;
  uint32_t connection = 0;
  uint32_t instruction = 0;
  uint64_t pass = 0;
};

/// A slice that the host has found ready: which one, and how many messages of its connections went before it.
struct SliceOrder {
  uint64_t pass = 0;
  uint32_t channel = 0, instruction = 0, slice = 0;
  uint64_t received = 0, sent = 0;
};

/// Block (channel, split) of one rank; T and op are those of the operation (Sum for Avg).
template <typename T, ReduceOp op, typename Platform>
class ProgramRun {
 public:
  SIXFOLD_DEVICE ProgramRun(Platform& platform, const RankProgram& program, uint32_t channel, uint32_t split)
      : platform_(platform), program_(program), channel_(channel), split_(split) {}

  /// Called by all threads of the block. False when a wait was given up: the links are unusable from then on.
  SIXFOLD_DEVICE bool run() {
    const int32_t awaits = program_.awaits[channel_];
    // Nobody else writes the one, or the other, while this block runs.
    if (awaits >= 0) awaited_base_ = *line(program_.seen, channel_);
    if (publishes()) publish_base_ = *publish_flag();
    platform_.sync();
    for (pass_ = 0; pass_ < program_.num_passes; ++pass_) {
      const InstructionList list = list_of(channel_);
      for (uint32_t i = 0; i < list.count; ++i) {
        instruction_ = i;
        if (!run_instruction(program_.instructions[list.first + i], program_.cuts + list.first_cut)) return false;
      }
      publish_base_ += uint64_t{list.count} << kSliceBits;
      if (awaits >= 0) awaited_base_ += uint64_t{list_of(static_cast<uint32_t>(awaits)).count} << kSliceBits;
    }
    platform_.sync();
    if (platform_.thread() == 0) {
      if (awaits >= 0) *line(program_.seen, channel_) = awaited_base_;
      if (publishes()) platform_.raise(publish_flag(), publish_base_);
    }
    return true;
  }

  /// One slice, for which the host has waited (host_stepper.h). Called by all threads.
  SIXFOLD_DEVICE void run_slice(const SliceOrder& order) {
    pass_ = order.pass;
    const InstructionList list = list_of(channel_);
    const Instruction& in = program_.instructions[list.first + order.instruction];
    const Operands at = operands_of(in, program_.cuts + list.first_cut);
    ChunkWalk walk = walk_through(in, at);
    for (uint32_t slice = 0; slice < order.slice; ++slice) {
      for (uint32_t filled = 0; filled < program_.slot_elements;) walk.take(filled, program_.slot_elements);
    }
    move_slice(in, at, walk, has(in, kReceives) ? slot(*link(program_.recvs, in.recv), order.received) : nullptr,
               has(in, kSends) ? slot(*link(program_.sends, in.send), order.sent) : nullptr);
  }

 private:
  static constexpr int kSliceBits = 8;  // an instruction has fewer slices than a link slots

  SIXFOLD_DEVICE uint64_t* line(uint64_t* lines, uint32_t channel) const {
    return lines + uint64_t{channel * program_.num_splits + split_} * kFlagStride;
  }
  SIXFOLD_DEVICE bool publishes() const { return program_.awaited_by[channel_] >= 0; }
  SIXFOLD_DEVICE uint64_t* publish_flag() const {
    return line(program_.published, static_cast<uint32_t>(program_.awaited_by[channel_]));
  }
  SIXFOLD_DEVICE InstructionList list_of(uint32_t channel) const {
    const bool last = pass_ + 1 == program_.num_passes;
    const uint64_t stored = !program_.alike ? pass_ : (last ? program_.num_stored_passes - 1 : 0);
    return program_.lists[stored * program_.num_channels + channel];
  }
  SIXFOLD_DEVICE const BlockLink* link(const BlockLink* links, uint8_t connection) const {
    return links + uint64_t{channel_ * program_.num_splits + split_} * program_.max_connections + connection;
  }
  SIXFOLD_DEVICE static bool has(const Instruction& in, InstructionFlag flag) { return (in.op & flag) != 0; }

  /// Where chunk 0 of an operand's run would begin, were its cuts counted from element 0.
  SIXFOLD_DEVICE std::byte* base_of(uint32_t buffer) const {
    const bool moves_on = buffer <= static_cast<uint32_t>(Buffer::Output);
    const bool shifts = program_.alike && pass_ + 1 < program_.num_passes;
    const uint64_t shift = moves_on && shifts ? pass_ * program_.pass_count : 0;
    return program_.buffers[buffer] + shift * bytes_of(buffer);
  }
  SIXFOLD_DEVICE static constexpr uint64_t bytes_of(uint32_t buffer) {
    return buffer == static_cast<uint32_t>(Buffer::Accum) ? sizeof(kernels::Accum<T>) : sizeof(T);
  }
  SIXFOLD_DEVICE static bool is_accum(uint32_t buffer) {
    return !std::is_same_v<kernels::Accum<T>, T> && buffer == static_cast<uint32_t>(Buffer::Accum);
  }

  /// Where the operands of an instruction lie, but for the slots.
  struct Operands {
    const uint64_t *source_cuts, *destination_cuts;
    std::byte *source_base, *destination_base;
  };
  SIXFOLD_DEVICE Operands operands_of(const Instruction& in, const uint64_t* cuts) const {
    Operands at;
    at.source_cuts = has(in, kReadsSource) ? cuts + in.source : cuts + in.destination;
    at.destination_cuts = has(in, kStores) ? cuts + in.destination : at.source_cuts;
    at.source_base = has(in, kReadsSource) ? base_of(in.buffers & 15u) : nullptr;
    at.destination_base = has(in, kStores) ? base_of(in.buffers >> 4) : nullptr;
    return at;
  }
  SIXFOLD_DEVICE ChunkWalk walk_through(const Instruction& in, const Operands& at) const {
    return ChunkWalk(at.source_cuts, in.num_chunks, split_, program_.num_splits, program_.granule);
  }

  SIXFOLD_DEVICE bool run_instruction(const Instruction& in, const uint64_t* cuts) {
    const BlockLink* from = has(in, kReceives) ? link(program_.recvs, in.recv) : nullptr;
    const BlockLink* to = has(in, kSends) ? link(program_.sends, in.send) : nullptr;
    const Operands at = operands_of(in, cuts);
    ChunkWalk walk = walk_through(in, at);
    for (uint32_t slice = 0; !walk.done(); ++slice) {
      if (!platform_.agree(platform_.thread() != 0 || await_slice(in, from, to, slice))) return false;
      // Counts are read between the two barriers of a slice; thread 0 writes them after the second one.
      move_slice(in, at, walk, from == nullptr ? nullptr : slot(*from, *from->moved),
                 to == nullptr ? nullptr : slot(*to, *to->moved));
      platform_.sync();
      if (platform_.thread() == 0) end_slice(in, from, to, slice);
    }
    return true;
  }

  SIXFOLD_DEVICE T* slot(const BlockLink& of, uint64_t message) const {
    return reinterpret_cast<T*>(of.slots +
                                message % program_.num_slots * (uint64_t{program_.slot_elements} * sizeof(T)));
  }

  /// All pieces of one slice, by all threads. `received` and `send`: slots, or null.
  SIXFOLD_DEVICE void move_slice(const Instruction& in, const Operands& at, ChunkWalk& walk, const T* received,
                                 T* send) {
    const uint32_t source = in.buffers & 15u, destination = in.buffers >> 4;
    const float scale = has(in, kFinishes) ? program_.scale : 1.0f;
    const uint32_t capacity = program_.slot_elements;
    for (uint32_t filled = 0; !walk.done() && filled < capacity;) {
      const ChunkWalk::Piece piece = walk.take(filled, capacity);
      PieceOperands<T> o;
      if (received != nullptr) o.received = received + piece.place;
      if (send != nullptr) o.send = send + piece.place;
      if (at.source_base != nullptr) {
        o.local = at.source_base + (at.source_cuts[piece.chunk] + piece.offset) * bytes_of(source);
        o.local_is_accum = is_accum(source);
      }
      if (at.destination_base != nullptr) {
        o.dst = at.destination_base + (at.destination_cuts[piece.chunk] + piece.offset) * bytes_of(destination);
        o.dst_is_accum = is_accum(destination);
      }
      if (has(in, kReduces) &&
          received == nullptr) {  // op(source, destination): the source takes the part of a message
        o.received = static_cast<const T*>(o.local);
        o.local = o.dst;
        o.local_is_accum = o.dst_is_accum;
      }
      move_piece<T, op>(platform_, o, piece.count, scale);
    }
  }

  /// By one thread. Dependencies first: they cost least to look at.
  SIXFOLD_DEVICE bool await_slice(const Instruction& in, const BlockLink* from, const BlockLink* to, uint32_t slice) {
    const auto await = [&](WaitKind kind, uint32_t connection, const uint64_t* flag, uint64_t at_least) {
      return platform_.await(flag, at_least, {kind, channel_, split_, connection, instruction_, pass_});
    };
    if (in.awaited != kNoInstruction) {
      const uint64_t wanted = awaited_base_ + (uint64_t{in.awaited} << kSliceBits) + slice + 1;
      if (!await(WaitKind::Channel, 0, line(program_.published, channel_), wanted)) return false;
    }
    if (from != nullptr && !await(WaitKind::Message, in.recv, from->tail, *from->moved + 1)) return false;
    if (to == nullptr || *to->moved < program_.num_slots) return true;
    return await(WaitKind::Slot, in.send, to->head, *to->moved + 1 - program_.num_slots);
  }

  /// By one thread, after the barrier that ends the slice.
  SIXFOLD_DEVICE void end_slice(const Instruction& in, const BlockLink* from, const BlockLink* to, uint32_t slice) {
    if (to != nullptr) platform_.raise(to->tail, ++*to->moved);
    if (from != nullptr) platform_.raise(from->head, ++*from->moved);
    if (has(in, kPublishes)) {
      platform_.raise(publish_flag(), publish_base_ + (uint64_t{instruction_} << kSliceBits) + slice + 1);
    }
  }

  Platform& platform_;
  const RankProgram& program_;
  uint32_t channel_, split_;
  uint64_t pass_ = 0;
  uint32_t instruction_ = 0;
  uint64_t awaited_base_ = 0, publish_base_ = 0;
};

}  // namespace sixfold::comm
