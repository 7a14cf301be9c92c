// ProgramImage: one rank's lowered lists as the flat tables that its blocks read. ProgramTables: images as one block of
// bytes, for another memory than the host's.
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

class ProgramTables {
 public:
  /// Copies the tables of `image`. `program`: image.program, with flags and buffers as blocks will reach them.
  void add(const ProgramImage& image, const RankProgram& program);
  size_t bytes() const { return programs_at() + programs_.size() * sizeof(RankProgram); }
  /// Where the RankPrograms begin, in the order of add().
  size_t programs_at() const { return (bytes_.size() + 15) / 16 * 16; }
  /// All bytes, for memory that blocks reach at `base`, which is aligned to 16 bytes.
  std::vector<std::byte> at(std::byte* base) const;

 private:
  struct Places {  // offsets
    size_t instructions, cuts, lists, awaits, awaited_by, sends, recvs;
  };
  template <typename T>
  size_t append(const std::vector<T>& table);

  std::vector<std::byte> bytes_;  // of all tables, but not the programs
  std::vector<RankProgram> programs_;
  std::vector<Places> places_;
};

}  // namespace sixfold::comm
