// ProgramImage: one rank's lowered lists as the flat tables that its blocks read.
#pragma once

#include <functional>
#include <vector>

#include "runtime/comm/cuda/interpreter.h"
#include "runtime/comm/cuda/lowering.h"

namespace sixfold::comm {

struct ProgramImage {
  std::vector<Instruction> instructions;
  std::vector<uint64_t> cuts;
  std::vector<InstructionList> lists;
  std::vector<int32_t> awaits, awaited_by;
  std::vector<BlockLink> sends, recvs;
  RankProgram program;  // all but its pointers

  /// `link(peer, channel, split, sends)` is the rank's end of a link, to or from `peer`. `scale`: of an average.
  using LinkOf = std::function<BlockLink(int peer, int channel, int split, bool sends)>;
  ProgramImage(const Lowered& lowered, int rank, float scale, const LinkOf& link);

  /// `program` with pointers to the tables above, whose owner keeps them; flags and buffers are left to the caller.
  RankProgram view() const;
};

}  // namespace sixfold::comm
