// check_lowered(): replays the instruction lists of all blocks of all ranks, slice by slice, with the real number of
// slots.
//
// Blocks are sequential processes on bounded FIFOs and counters that only grow, a Kahn network, so what one order of
// progress leads to, every other does: one replay decides whether there is a deadlock. Where passes are alike it
// replays the first, the second and the last. Each of them empties the links, so that ranks which met after every pass
// would get through any number of them; and meeting only delays, it frees no slot.
//
// With call and in_place it looks at every element as well: two blocks that touch it, one of them writing, must be
// ordered by messages and dependencies (races.h). Between blocks of one rank only a dependency can do that.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/cuda/lowering.h"

namespace sixfold::comm {

enum class LoweredFault : uint8_t {
  None,
  Deadlock,           // no block can go on
  SizeMismatch,       // a receive meets a message of another size
  Leftover,           // a message was sent that nobody received
  MissingDependency,  // two blocks touch an element, one of them writing, and nothing orders the two
};

struct LoweredReport {
  LoweredFault fault = LoweredFault::None;
  std::string detail;  // names rank, block, pass, instruction
  bool ok() const { return fault == LoweredFault::None; }
};

/// Deadlock, SizeMismatch and Leftover only; time grows with the number of slices.
LoweredReport check_lowered(const Lowered& lowered);
/// All faults; time and memory grow with the number of elements. in_place[r] as lower() takes it.
LoweredReport check_lowered(const Lowered& lowered, const Call& call, const std::vector<bool>& in_place);

}  // namespace sixfold::comm
