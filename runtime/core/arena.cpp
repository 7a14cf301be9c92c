#include "runtime/core/arena.h"

#include <algorithm>
#include <iterator>

#include "runtime/core/error.h"

namespace sixfold {

Arena::Arena(size_t bytes, size_t alignment) : alignment_(alignment) {
  SIXFOLD_CHECK(alignment > 0 && (alignment & (alignment - 1)) == 0, "alignments are powers of two");
  const size_t whole = bytes / alignment * alignment;
  if (whole > 0) free_[0] = whole;
}

std::optional<size_t> Arena::allocate(size_t bytes) {
  const size_t piece = (bytes + alignment_ - 1) / alignment_ * alignment_;
  if (piece < bytes) return std::nullopt;  // beyond the numbers
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return range.second >= piece; });
  if (found == free_.end()) return std::nullopt;
  const auto [offset, length] = *found;
  free_.erase(found);
  if (length > piece) free_[offset + piece] = length - piece;
  taken_[offset] = piece;
  used_bytes_ += piece;
  return offset;
}

void Arena::release(size_t offset) {
  const auto found = taken_.find(offset);
  SIXFOLD_CHECK(found != taken_.end(), "a piece of the arena begins at " + std::to_string(offset));
  used_bytes_ -= found->second;
  auto range = free_.emplace(offset, found->second).first;
  taken_.erase(found);
  const auto next = std::next(range);
  if (next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto before = std::prev(range);
  if (before->first + before->second != range->first) return;
  before->second += range->second;
  free_.erase(range);
}

size_t Arena::largest_free_bytes() const {
  size_t largest = 0;
  for (const auto& [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace sixfold
