// The two phases of the ring among some ranks of a call, whatever blocks they pass around. Only builders include this.
#pragma once

#include <functional>

#include "runtime/comm/schedule/builders.h"

namespace sixfold::comm {

/// Some ranks of the call in the order in which they pass data on, and the place of this one among them.
struct Ring {
  std::vector<int> ranks;
  int position = 0;

  int size() const { return static_cast<int>(ranks.size()); }
  /// The rank `distance` places after (before, where negative) this one. |distance| <= size.
  int at(int distance) const { return ranks[static_cast<size_t>((position + distance + size()) % size())]; }
};

/// The block of a rank of the ring: its slice of Input, or of what else is reduced or gathered.
using BlockOf = std::function<Slice(int rank)>;

/// Leaves the sum of everybody's block of this rank in `result`. A ring of two and more, like all here.
void ring_reduce_scatter(const Ring& ring, const BlockOf& block_of, const Slice& result, bool finish,
                         Schedule& schedule);

/// Fills all blocks from everybody's `own`; `copy` is where this rank's goes, unused where it is there.
void ring_all_gather(const Ring& ring, const Slice& own, const Slice& copy, const BlockOf& block_of,
                     Schedule& schedule);

}  // namespace sixfold::comm
