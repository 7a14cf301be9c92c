// StagingRing: places in a buffer of the host for bytes that are on their way to or from a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

#include "runtime/core/error.h"

namespace sixfold::kernels::cuda {

/// Hands the buffer out piece after piece, and begins anew at its end. A piece is busy until a mark that its user gives
/// has been passed: an event of the stream that copies it. Marks are passed in the order in which they were given, and
/// no more than kMaxPieces are kept.
template <typename Mark>
class StagingRing {
 public:
  static constexpr size_t kMaxPieces = 64;
  explicit StagingRing(size_t bytes) : bytes_(bytes) {}

  /// The offset of the next piece, of `bytes` (0 < bytes <= the buffer), after wait(mark) for the last one of those
  /// before it that must be over.
  template <typename Wait>
  size_t take(size_t bytes, const Wait& wait) {
    SIXFOLD_CHECK_LE(bytes, bytes_, "a piece larger than the staging buffer");
    if (next_ + bytes > bytes_) next_ = 0;
    const size_t begin = next_, end = begin + (bytes + kAlign - 1) / kAlign * kAlign;
    const auto overlaps = [&](const Piece& piece) { return piece.begin < end && begin < piece.end; };
    auto last = std::find_if(busy_.rbegin(), busy_.rend(), overlaps).base();
    if (last == busy_.begin() && busy_.size() == kMaxPieces) ++last;
    if (last != busy_.begin()) wait(std::prev(last)->mark);
    busy_.erase(busy_.begin(), last);
    next_ = end;
    taken_ = {begin, end};
    return begin;
  }

  /// For the piece taken last.
  void busy_until(Mark mark) { busy_.push_back({taken_.first, taken_.second, std::move(mark)}); }

 private:
  static constexpr size_t kAlign = 64;  // bytes: pieces share no cache line
  struct Piece {
    size_t begin, end;
    Mark mark;
  };
  size_t bytes_;
  size_t next_ = 0;
  std::pair<size_t, size_t> taken_;
  std::deque<Piece> busy_;  // in the order of taking
};

}  // namespace sixfold::kernels::cuda
