// Permutation: the order of an epoch, as a pure function. No table exists, so any rank finds its rows of any step
// alone.
#pragma once

#include <cstdint>

namespace sixfold::train {

/// A bijection of [0, size), keyed by (seed, epoch).
///
/// A balanced Feistel network over the smallest even number of bits that covers `size` is a bijection of that power of
/// four; walking along its cycle until a value falls below `size` restricts it to [0, size) (fewer than four steps on
/// average). Sources: Luby, Rackoff, "How to construct pseudorandom permutations", 1988; Black, Rogaway, "Ciphers with
/// arbitrary finite domains", 2002, section 3 (cycle walking).
class Permutation {
 public:
  /// size >= 1.
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);
  /// The image of `index`; 0 <= index < size.
  int64_t operator()(int64_t index) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t size_ = 1;
  uint64_t key_ = 0;
  uint64_t epoch_ = 0;
  int half_bits_ = 0;
};

}  // namespace sixfold::train
