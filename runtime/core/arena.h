// Arena: hands out pieces of one block of memory that it never touches, so that the block may be a GPU's.
//
// First fit over free ranges, which are merged with their neighbours when they come back. Few and large pieces live
// here: a list by address is quick enough.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace sixfold {

class Arena {
 public:
  /// Of `bytes` bytes; pieces begin at multiples of `alignment`, a power of two.
  Arena(size_t bytes, size_t alignment);

  /// Offset of a piece of `bytes` bytes (> 0), or nothing where no free range is long enough.
  std::optional<size_t> allocate(size_t bytes);
  /// Gives a piece back. Throws CheckError where there is none at `offset`.
  void release(size_t offset);

  size_t used_bytes() const { return used_bytes_; }
  /// The longest piece that there is room for.
  size_t largest_free_bytes() const;

 private:
  size_t alignment_;
  size_t used_bytes_ = 0;
  std::map<size_t, size_t> free_, taken_;  // by offset: bytes
};

}  // namespace sixfold
