// How a collective on device memory is cut into pieces that pass through buffers on the host, each a collective of the
// same kind. A piece covers the same elements of each block, as a pass does (schedule/schedule.h), so results are those
// of the whole; and where additions go in rank order (direct), so are the bits. Pure functions.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// Elements [offset, offset + count) of the caller's buffer, at `staged` on the host.
struct PieceSpan {
  size_t offset = 0, staged = 0, count = 0;
  bool operator==(const PieceSpan&) const = default;
};

struct PieceCut {
  // The collective on the host, its blocks one after another, out of place; Broadcast: in place, in the output.
  size_t count = 0;                                   // as in Call
  std::shared_ptr<const std::vector<size_t>> counts;  // as in Call; nullptr where the whole has none
  std::vector<PieceSpan> in, out;                     // what call.rank copies; none of count 0
};

/// How many elements of each block a piece covers, so that neither side of it has more than `piece_bytes` bytes. At
/// least one.
size_t piece_step(Primitive primitive, int size, size_t element_bytes, size_t piece_bytes);
/// Of one side of a piece, at most.
size_t piece_side_bytes(int size, size_t piece_bytes);

/// Elements [begin, end) of each block, as far as blocks go.
PieceCut cut_piece(const Call& call, size_t begin, size_t end);

}  // namespace sixfold::comm
