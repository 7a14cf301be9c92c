// Chunk cuts: into which chunks the buffers of all ranks are cut in one pass, so that every step moves whole chunks.
//
// Wherever some step begins or ends, there is a cut. A step that copies from one buffer to another, or a message that
// goes from one rank's step to another's, carries cuts along, both ways, until none is new. So all that a value ever
// passes through is cut alike, and part `split` of a chunk is the same elements everywhere.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// A step of a schedule that moves something.
struct StepPlace {
  int rank = 0;
  size_t step = 0;
};

/// The receive of each send: the k-th of one sender, receiver and channel meet. Throws CheckError where there are more
/// of one than of the other, or their sizes differ. `schedules`: of one pass, by rank.
std::vector<std::pair<StepPlace, StepPlace>> match_messages(const std::vector<Schedule>& schedules);

class ChunkCuts {
 public:
  /// `call` as builders get it, its rank is ignored. Input and Output are always cut as if they were the same memory,
  /// in place or not, so that the chunks of a rank do not depend on where another rank has its buffers.
  ChunkCuts(const Call& call, const std::vector<Schedule>& schedules);

  /// Cuts of `buffer` on `rank`, ascending, in its own elements, from the first to the last that any step touches.
  /// Empty where none does.
  const std::vector<uint64_t>& of(int rank, Buffer buffer) const;

 private:
  static constexpr size_t kNumBuffers = 4;
  struct RankCuts {
    size_t input_base = 0, output_base = 0;      // of the two in the memory that holds both
    std::vector<size_t> shared, scratch, accum;  // ascending
    std::vector<uint64_t> cuts[kNumBuffers];
  };
  struct Span {  // elements of a rank's memory, [begin, begin + count)
    std::vector<size_t>* memory;
    size_t begin, count;
  };

  Span span_of(int rank, const Slice& slice);
  void spread(const std::vector<std::pair<Span, Span>>& alike);
  void cut_buffers(const std::vector<Schedule>& schedules);

  std::vector<RankCuts> ranks_;
};

}  // namespace sixfold::comm
