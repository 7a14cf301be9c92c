#include "runtime/train/permutation.h"

#include <bit>

#include "runtime/core/error.h"
#include "runtime/core/rng.h"

namespace sixfold::train {

namespace {
constexpr int kNumRounds = 8;                     // four are provably pseudorandom; small halves profit from more
constexpr uint64_t kStream = 0x7065726d75746521;  // sets this use of the seed apart from initialisation and dropout
}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch)
    : size_(static_cast<uint64_t>(size)), key_(philox_hash(seed, kStream)), epoch_(epoch) {
  SIXFOLD_CHECK_LE(1, size, "a permutation has at least one element");
  half_bits_ = (std::bit_width(size_ - 1) + 1) / 2;
}

int64_t Permutation::operator()(int64_t index) const {
  SIXFOLD_CHECK_LE(0, index, "index of a permutation");
  SIXFOLD_CHECK_LT(static_cast<uint64_t>(index), size_, "index of a permutation");
  uint64_t value = static_cast<uint64_t>(index);
  do value = encrypt(value);
  while (value >= size_);
  return static_cast<int64_t>(value);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const PhiloxKey key{static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)};
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint32_t round = 0; round < kNumRounds; ++round) {
    const PhiloxBlock random = philox(
        key, {static_cast<uint32_t>(right), round, static_cast<uint32_t>(epoch_), static_cast<uint32_t>(epoch_ >> 32)});
    const uint64_t mixed = left ^ (random[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

}  // namespace sixfold::train
