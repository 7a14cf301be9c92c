// What a block of the executor kernel runs: lists of 16-byte instructions, and tables of chunks.
//
// A rank runs num_channels x num_splits blocks. Block (channel, split) runs the list of its channel, and of every chunk
// that an instruction names it moves part `split` (part_of_chunk). Chunks are cut so that steps which touch the same
// elements name the same chunks (chunk_cuts.h): an element stays with one split for the whole pass, so blocks of
// different splits need not know of one another.
//
// Plain data: the host writes it, blocks on a GPU and the host interpreter of the tests read it.
#pragma once

#include <cstdint>

#include "runtime/core/host_device.h"

namespace sixfold::comm {

/// Bits of Instruction::op.
enum InstructionFlag : uint8_t {
  kReceives = 1,  // a message of connection `recv`
  kSends = 2,     // the value to connection `send`
  kReadsSource = 4,
  kStores = 8,     // the value to the destination
  kReduces = 16,   // value = op(received, source), or op(source, destination) where nothing is received; else a copy
  kFinishes = 32,  // scales the value, where the operation is an average
  kPublishes = 64  // another channel waits for slices of this instruction
};

inline constexpr uint8_t kNoConnection = 0xff;
inline constexpr uint32_t kNoInstruction = 0xffffffff;

struct alignas(16) Instruction {
  uint8_t op = 0;
  uint8_t buffers = 0;  // source: bits 0-3, destination: bits 4-7, as Buffer numbers them
  uint8_t send = kNoConnection, recv = kNoConnection;
  uint16_t source = 0, destination = 0;  // first chunk of each
  uint32_t num_chunks = 0;               // of source, of destination, and of what travels
  uint32_t awaited = kNoInstruction;     // of the channel that this one awaits: slice i follows slice i of that one

  bool operator==(const Instruction&) const = default;
};
static_assert(sizeof(Instruction) == 16);

/// The instructions of one channel in one pass, and where the chunk table of the pass begins: chunk i of it holds
/// elements [cuts[first_cut + i], cuts[first_cut + i + 1]) of its buffer.
struct InstructionList {
  uint32_t first = 0, count = 0;
  uint32_t first_cut = 0;
};

/// Elements [begin, begin + count) of a chunk.
struct ChunkPart {
  uint32_t begin = 0, count = 0;
};

/// Most elements of a chunk, which a pass does not exceed: the arithmetic of parts has 32 bits.
inline constexpr uint64_t kMaxChunk = 0xffff0000;

/// The part of a chunk of `length` elements that one of `num_splits` blocks moves: whole granules (of 16 bytes, so that
/// parts of an aligned chunk are aligned), nearly as many for each, the first ones one more.
SIXFOLD_HD inline ChunkPart part_of_chunk(uint32_t length, uint32_t split, uint32_t num_splits, uint32_t granule) {
  const uint32_t num_granules = (length + granule - 1) / granule;
  const uint32_t floor = num_granules / num_splits, num_larger = num_granules % num_splits;
  const uint32_t begin = (split * floor + (split < num_larger ? split : num_larger)) * granule;
  const uint32_t end = begin + (floor + (split < num_larger ? 1 : 0)) * granule;
  if (begin >= length) return {length, 0};
  return {begin, (end < length ? end : length) - begin};
}

/// Walks through one split's parts of consecutive chunks, as much at a time as a slot has room for.
class ChunkWalk {
 public:
  /// `cuts` points at the begin of the first chunk.
  SIXFOLD_HD ChunkWalk(const uint64_t* cuts, uint32_t num_chunks, uint32_t split, uint32_t num_splits, uint32_t granule)
      : cuts_(cuts), num_chunks_(num_chunks), split_(split), num_splits_(num_splits), granule_(granule) {
    settle();
  }
  SIXFOLD_HD bool done() const { return chunk_ == num_chunks_; }

  /// Elements [offset, offset + count) of a chunk, and their place among the elements of a slot.
  struct Piece {
    uint32_t chunk = 0;
    uint32_t offset = 0, count = 0;
    uint32_t place = 0;
  };
  /// The next piece, of a slot of `capacity` elements (whole granules) in which `filled` are taken; adds to `filled`.
  /// Pieces begin at whole granules. Only when not done() and `filled` < `capacity`.
  SIXFOLD_HD Piece take(uint32_t& filled, uint32_t capacity) {
    const uint32_t room = capacity - filled, left = part_.count - within_;
    const Piece piece{chunk_, part_.begin + within_, left < room ? left : room, filled};
    filled += (piece.count + granule_ - 1) / granule_ * granule_;
    within_ += piece.count;
    if (within_ == part_.count) {
      ++chunk_;
      settle();
    }
    return piece;
  }

 private:
  /// To the next chunk of which the split has a part.
  SIXFOLD_HD void settle() {
    within_ = 0;
    for (; chunk_ < num_chunks_; ++chunk_) {
      part_ = part_of_chunk(static_cast<uint32_t>(cuts_[chunk_ + 1] - cuts_[chunk_]), split_, num_splits_, granule_);
      if (part_.count > 0) return;
    }
  }

  const uint64_t* cuts_;
  uint32_t num_chunks_, split_, num_splits_, granule_;
  uint32_t chunk_ = 0;
  ChunkPart part_;
  uint32_t within_ = 0;
};

}  // namespace sixfold::comm
