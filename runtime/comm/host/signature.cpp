#include "runtime/comm/host/signature.h"

namespace sixfold::comm {

std::string to_string(const Signature& s) {
  std::string text = std::string(primitive_name(s.primitive)) + ", count " + std::to_string(s.count) + ", " +
                     std::string(dtype_name(s.dtype));
  if (s.primitive == Primitive::Send || s.primitive == Primitive::Recv) return text;
  return text + ", " + std::string(reduce_op_name(s.op)) + ", root " + std::to_string(s.root) + ", " +
         std::string(algorithm_name(s.algorithm));
}

void SignatureRing::publish(uint64_t sequence, const Signature& signature, double now_s) {
  Entry& entry = entries_[sequence % kEntries];
  const auto words = signature.pack();
  // A sequence lock: a reader that finds the stamp before and after reading the words has read one signature. A word is
  // stored with release, so whoever reads a new one also sees that the old stamp is gone.
  entry.stamp.store(0, std::memory_order_relaxed);
  entry.words[0].store(words[0], std::memory_order_release);
  entry.words[1].store(words[1], std::memory_order_release);
  entry.entered.store(now_s, std::memory_order_release);
  entry.stamp.store(sequence + 1, std::memory_order_release);
  entered_.store(sequence + 1, std::memory_order_release);
}

double SignatureRing::entered_at(uint64_t sequence) const {
  const Entry& entry = entries_[sequence % kEntries];
  if (entry.stamp.load(std::memory_order_acquire) != sequence + 1) return 0;
  const double entered = entry.entered.load(std::memory_order_acquire);
  return entry.stamp.load(std::memory_order_acquire) == sequence + 1 ? entered : 0;
}

std::optional<Signature> SignatureRing::find(uint64_t sequence) const {
  const Entry& entry = entries_[sequence % kEntries];
  if (entry.stamp.load(std::memory_order_acquire) != sequence + 1) return std::nullopt;
  const std::array<uint64_t, 2> words = {entry.words[0].load(std::memory_order_acquire),
                                         entry.words[1].load(std::memory_order_acquire)};
  if (entry.stamp.load(std::memory_order_acquire) != sequence + 1) return std::nullopt;
  return Signature::unpack(words);
}

}  // namespace sixfold::comm
