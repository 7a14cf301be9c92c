// Lowering: from the schedules of all ranks to the instruction lists that blocks of the executor kernel run.
//
//   1. match the k-th send with the k-th receive of every (sender, receiver, channel)
//   2. cut all buffers into chunks (chunk_cuts.h), so that blocks can share a step without knowing of one another
//   3. write one instruction a step. Builders have fused what can be (append_send), so a receive that is reduced and
//      sent on is one instruction; a byte from a peer is read once and written once
//   4. replay the lists with the real number of slots, which proves them free of deadlock (lowered_check.h)
//
// Source: the interpreter and its instruction are those of Cowan et al., "MSCCLang: Microsoft collective communication
// language", ASPLOS 2023, sections 4 and 5, with chunks of any size in the place of equal ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/cuda/instruction.h"
#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// How a rank's work is spread over blocks, and what their links hold.
struct BlockShape {
  int num_splits = 1;          // blocks a channel
  int num_slots = 8;           // of each link of each block; >= 2
  uint32_t slot_elements = 0;  // whole granules
  uint32_t granule = 1;        // elements of 16 bytes

  /// slot_bytes: a multiple of 16.
  static BlockShape of(int num_splits, int num_slots, size_t slot_bytes, size_t element_bytes);
  /// What all blocks of a channel together may have in flight in one step.
  size_t step_capacity() const;
};

/// The lists of one pass on one rank.
struct LoweredPass {
  std::vector<std::vector<Instruction>> lists;  // by channel
  std::vector<uint64_t> cuts;                   // the chunk tables of the four buffers, one after another
};

struct LoweredRank {
  std::vector<LoweredPass> passes;
  std::vector<std::vector<int>> send_peers, recv_peers;  // by channel: the peer of each connection
  std::vector<int> awaits;                               // by channel: the one that its instructions await; -1: none
  /// Elements of all stored passes together: each has its own part of Scratch and Accum. Splits go on to the next pass
  /// without waiting for one another, which is sound only where both passes are cut alike.
  size_t scratch_count = 0, accum_count = 0;
};

struct Lowered {
  BlockShape shape;
  size_t num_passes = 0;
  /// Passes before the last are alike, but for `pass_count` elements by which Input and Output move on from each to the
  /// next: two are stored, or one. Else all are, as blocks of different size need it.
  bool alike = true;
  size_t pass_count = 0;
  int num_channels = 1;
  std::vector<LoweredRank> ranks;

  size_t stored_pass(size_t pass) const;
  size_t shift(size_t pass) const { return alike && pass + 1 < num_passes ? pass * pass_count : 0; }
};

/// Lowers all passes of `call`, whose rank, pass and in_place fields are ignored; topology and counts as builders want
/// them. in_place[r]: as Call::in_place, of rank r. Throws CheckError where the slots are too small for the number of
/// ranks, or the schedules do not fit together.
Lowered lower(const Call& call, const std::vector<bool>& in_place, Algorithm algorithm, const BlockShape& shape);

/// Instructions of one pass from the schedules of all ranks, for lower() and for tests that write schedules by hand.
/// Adds to `lowered`, whose shape is set.
void lower_pass(const Call& call, const std::vector<Schedule>& schedules, Lowered& lowered);

/// Slices that block `split` of the instruction's channel cuts it into.
size_t num_slices(const BlockShape& shape, const LoweredPass& pass, const Instruction& instruction, int split);
/// A walk through what that block moves of it.
ChunkWalk walk_of(const BlockShape& shape, const LoweredPass& pass, const Instruction& instruction, int split);

/// What `rank` sends in all passes.
uint64_t sent_elements(const Lowered& lowered, int rank);

/// "recv 0, reduce Input chunks 2+1 -> Output 2+1, send 1"; connections are numbered as in the list's channel.
std::string to_string(const Instruction& instruction);

}  // namespace sixfold::comm
