// Signature: what a rank believes an operation to be. Every message carries its sender's, and each rank publishes its
// own in a table that the group can read, so a difference is an error that names both sides, never a wrong result.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/reduce.h"
#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

struct Signature {
  Primitive primitive = Primitive::AllReduce;
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::Sum;
  Algorithm algorithm = Algorithm::Auto;
  int32_t root = 0;
  uint64_t count = 0;

  bool operator==(const Signature&) const = default;

  /// Two words, so that tables can hold signatures in lock-free atomics.
  std::array<uint64_t, 2> pack() const {
    return {static_cast<uint64_t>(primitive) | static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(op) << 16 |
                static_cast<uint64_t>(algorithm) << 24 | static_cast<uint64_t>(static_cast<uint32_t>(root)) << 32,
            count};
  }
  static Signature unpack(const std::array<uint64_t, 2>& words) {
    return {static_cast<Primitive>(words[0] & 0xff),      static_cast<DType>(words[0] >> 8 & 0xff),
            static_cast<ReduceOp>(words[0] >> 16 & 0xff), static_cast<Algorithm>(words[0] >> 24 & 0xff),
            static_cast<int32_t>(words[0] >> 32),         words[1]};
  }
};

/// "all_reduce, count 4096, f32, sum, root 0, ring"
std::string to_string(const Signature& signature);

/// The last operations that one rank has entered, written by it, read by all. All zero at the start.
class SignatureRing {
 public:
  /// sequence numbers count from 0; now_s: of the host's steady clock.
  void publish(uint64_t sequence, const Signature& signature, double now_s);
  /// When operation `sequence` was entered; 0 where that is not to be known: as in find().
  double entered_at(uint64_t sequence) const;
  /// The signature of operation `sequence`; empty when it was not entered yet, or is overwritten by later ones.
  std::optional<Signature> find(uint64_t sequence) const;
  /// Once operation `sequence` may be acted on and not before: peers may from now on write to its Output, which `word`
  /// names (0: they cannot reach it).
  void publish_output(uint64_t sequence, uint64_t word) {
    entries_[sequence % kEntries].output.store(word, std::memory_order_relaxed);
    started_.store(sequence + 1, std::memory_order_release);
  }
  /// The word of the Output of operation `sequence`; 0 when the rank has not started it, or has entered another one
  /// than `packed` says in its place, or it cannot be reached. Only for an operation that this rank cannot have left
  /// behind.
  uint64_t output_of(uint64_t sequence, const std::array<uint64_t, 2>& packed) const {
    if (started_.load(std::memory_order_acquire) <= sequence) return 0;
    const Entry& entry = entries_[sequence % kEntries];
    const bool same = entry.words[0].load(std::memory_order_relaxed) == packed[0] &&
                      entry.words[1].load(std::memory_order_relaxed) == packed[1];
    return same ? entry.output.load(std::memory_order_relaxed) : 0;
  }
  /// The oldest operation that find() may still know.
  uint64_t oldest() const {
    const uint64_t count = entered();
    return count > kEntries ? count - kEntries : 0;
  }
  /// Number of operations entered.
  uint64_t entered() const { return entered_.load(std::memory_order_acquire); }

 private:
  static constexpr size_t kEntries = 256;
  struct alignas(64) Entry {
    std::atomic<uint64_t> stamp;  // sequence + 1; 0 while it is written
    std::atomic<uint64_t> words[2];
    std::atomic<uint64_t> output;
    std::atomic<double> entered;
  };
  std::atomic<uint64_t> entered_;
  std::atomic<uint64_t> started_;
  Entry entries_[kEntries];
};

}  // namespace sixfold::comm
