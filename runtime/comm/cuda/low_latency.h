// All-reduce of small messages between ranks that reach one another's memory, written by hand, with the flag in the
// data: a word of 8 bytes is 4 bytes of the message and the 4-byte number of the operation. Whoever reads the number
// that it waits for has the data as well, since a word is written at once; so a hop costs one store, and no fence.
//
//   one shot    everybody sends all to all and adds all                             (N-1) S sent per rank
//   two shots   everybody sends part p to rank p, which adds it and sends it to all  2(N-1)/N S sent per rank
//
// Numbers never repeat, so nothing is reset. There are two areas for words on every rank, which operations use in turn:
// who starts operation k + 2 has received words of k + 1 that depend on all ranks, and each sent its own after its
// launch of k had ended, and had read all of k. Contributions are added in rank order in the accumulator's type and
// rounded once: the bits are those of the algorithm `direct` (schedule/direct.cpp).
//
// Source: the protocol is the one that NCCL calls LL (Hu et al., "Demystifying NCCL", 2025, section III).
//
// `Platform` is that of element_loops.h, and
//
//   uint64_t load_word(const uint64_t*)           one word at once, as a peer wrote it
//   void store_word(uint64_t*, uint64_t)          the same
//   bool await_word(const uint64_t*, uint32_t number, uint64_t& word, const WaitPlace&)   one thread: false: it gives
//   up
#pragma once

#include "runtime/comm/cuda/direct_all_reduce.h"
#include "runtime/comm/cuda/interpreter.h"

namespace sixfold::comm {

inline constexpr uint32_t kLowLatencyPackBytes = 8;                                // of the message; two words
inline constexpr uint32_t kOneShotBytes = 16 * 1024, kTwoShotBytes = 1024 * 1024;  // the longest messages

struct LowLatencyArguments {
  const void* input = nullptr;
  void* output = nullptr;                  // may be the input
  uint64_t* words[kMaxRanksPerGrid] = {};  // by rank: the area of this operation, as this rank reaches it
  uint32_t count = 0;                      // elements, > 0
  uint32_t rank = 0, num_ranks = 0;
  uint32_t number = 0;                      // of the operation; never 0
  bool two_shots = false, aligned = false;  // aligned: input and output, to whole packs
  float scale = 1;                          // of an average: 1 / num_ranks
};

inline bool is_aligned_to_pack(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kLowLatencyPackBytes == 0;
}

/// The first of the packs that `rank` adds in two shots; those of the next rank follow.
SIXFOLD_HD inline uint32_t pack_begin(uint32_t num_packs, uint32_t rank, uint32_t num_ranks) {
  return num_packs * rank / num_ranks;
}

/// Bytes of one area for words.
inline size_t low_latency_area_bytes(size_t num_ranks) {
  const size_t one_shot = num_ranks * (kOneShotBytes / kLowLatencyPackBytes);
  const size_t packs = kTwoShotBytes / kLowLatencyPackBytes;
  const size_t two_shots = num_ranks * (packs / num_ranks + 1) + packs;
  return (one_shot > two_shots ? one_shot : two_shots) * 2 * sizeof(uint64_t);
}

inline uint64_t low_latency_sent_bytes(const LowLatencyArguments& a, size_t element_bytes) {
  const uint64_t bytes = a.count * element_bytes, others = a.num_ranks - 1;
  if (!a.two_shots) return others * bytes;
  const auto num_packs = static_cast<uint32_t>((bytes + kLowLatencyPackBytes - 1) / kLowLatencyPackBytes);
  const auto byte_of = [&](uint32_t rank) {
    const uint64_t begin = uint64_t{pack_begin(num_packs, rank, a.num_ranks)} * kLowLatencyPackBytes;
    return begin < bytes ? begin : bytes;
  };
  const uint64_t own = byte_of(a.rank + 1) - byte_of(a.rank);
  return bytes - own + others * own;
}

/// What block `block` of `num_blocks` of one rank does; called by all its threads, which do not wait for one another.
/// In place needs no care: the thread that writes an element is the one that has read it.
template <typename T, ReduceOp op, typename Platform>
class LowLatencyRun {
 public:
  SIXFOLD_DEVICE LowLatencyRun(Platform& platform, const LowLatencyArguments& arguments, uint32_t block,
                               uint32_t num_blocks)
      : platform_(platform),
        a_(arguments),
        num_packs_((arguments.count + kPack - 1) / kPack),
        first_(block * platform.num_threads() + platform.thread()),
        stride_(num_blocks * platform.num_threads()) {}

  /// False when a wait was given up: the areas are unusable from then on.
  SIXFOLD_DEVICE bool run() {
    // In one shot, everybody adds all of it.
    const uint32_t longest = a_.two_shots ? num_packs_ / a_.num_ranks + 1 : num_packs_;  // of the parts
    const uint32_t results = longest * a_.num_ranks;  // where those of all parts lie, behind the contributions
    for (uint32_t k = 1; k < a_.num_ranks; ++k) {
      const uint32_t begin = part(peer(k)), count = part_count(peer(k));
      for (uint32_t i = first_; i < count; i += stride_) send(peer(k), a_.rank * longest + i, load(begin + i));
    }
    const uint32_t own = part(a_.rank), own_count = part_count(a_.rank);
    for (uint32_t i = first_; i < own_count; i += stride_) {
      uint64_t result = 0;
      if (!reduce(own + i, i, longest, result)) return false;
      store(own + i, result);
      if (!a_.two_shots) continue;
      for (uint32_t k = 1; k < a_.num_ranks; ++k) send(peer(k), results + own + i, result);
    }
    for (uint32_t k = 1; a_.two_shots && k < a_.num_ranks; ++k) {
      const uint32_t begin = part(peer(k)), count = part_count(peer(k));
      for (uint32_t i = first_; i < count; i += stride_) {
        const uint64_t* const words = a_.words[a_.rank] + 2 * size_t{results + begin + i};
        uint64_t result = 0;
        if (!settle(words, peer(k), platform_.load_word(words), platform_.load_word(words + 1), result)) return false;
        store(begin + i, result);
      }
    }
    return true;
  }

 private:
  static constexpr uint32_t kPack = kLowLatencyPackBytes / sizeof(T);
  using A = kernels::Accum<T>;

  /// What `rank` adds.
  SIXFOLD_DEVICE uint32_t part(uint32_t rank) const {
    return a_.two_shots ? pack_begin(num_packs_, rank, a_.num_ranks) : 0;
  }
  SIXFOLD_DEVICE uint32_t part_count(uint32_t rank) const {
    return a_.two_shots ? pack_begin(num_packs_, rank + 1, a_.num_ranks) - part(rank) : num_packs_;
  }
  /// Everybody begins with another one.
  SIXFOLD_DEVICE uint32_t peer(uint32_t k) const {
    const uint32_t next = a_.rank + k;
    return next < a_.num_ranks ? next : next - a_.num_ranks;
  }

  SIXFOLD_DEVICE uint64_t load(uint32_t pack) const {
    const T* const data = static_cast<const T*>(a_.input) + pack * kPack;
    if (a_.aligned && (pack + 1) * kPack <= a_.count) {
      return std::bit_cast<uint64_t>(*reinterpret_cast<const Pack<T, kPack>*>(data));
    }
    Pack<T, kPack> elements{};
    for (uint32_t e = 0; e < kPack && pack * kPack + e < a_.count; ++e) elements.element[e] = data[e];
    return std::bit_cast<uint64_t>(elements);
  }
  SIXFOLD_DEVICE void store(uint32_t pack, uint64_t value) const {
    T* const data = static_cast<T*>(a_.output) + pack * kPack;
    const auto elements = std::bit_cast<Pack<T, kPack>>(value);
    if (a_.aligned && (pack + 1) * kPack <= a_.count) {
      *reinterpret_cast<Pack<T, kPack>*>(data) = elements;
      return;
    }
    for (uint32_t e = 0; e < kPack && pack * kPack + e < a_.count; ++e) data[e] = elements.element[e];
  }

  SIXFOLD_DEVICE void send(uint32_t to, uint32_t place, uint64_t pack) {
    uint64_t* const words = a_.words[to] + 2 * size_t{place};
    const uint64_t number = uint64_t{a_.number} << 32;
    platform_.store_word(words, (pack & 0xffffffffu) | number);
    platform_.store_word(words + 1, (pack >> 32) | number);
  }
  /// Of two words that have been read, waits for those that were not there yet.
  SIXFOLD_DEVICE bool settle(const uint64_t* words, uint32_t from, uint64_t low, uint64_t high, uint64_t& pack) {
    const WaitPlace place{WaitKind::Words, 0, 0, from, 0, 0};
    if (low >> 32 != a_.number && !platform_.await_word(words, a_.number, low, place)) return false;
    if (high >> 32 != a_.number && !platform_.await_word(words + 1, a_.number, high, place)) return false;
    pack = (low & 0xffffffffu) | (high << 32);
    return true;
  }

  /// All contributions to `pack` in rank order. That of rank r lies at r * stride + place of the own area.
  SIXFOLD_DEVICE bool reduce(uint32_t pack, uint32_t place, uint32_t stride, uint64_t& result) {
    // Ranks whose words are read before the first is waited for, as registers allow.
    constexpr uint32_t kInFlight = sizeof(T) == 1 ? 2 : 4;
    A value[kPack];
    for (uint32_t rank = 0; rank < a_.num_ranks; rank += kInFlight) {
      uint64_t low[kInFlight], high[kInFlight];
      SIXFOLD_UNROLL
      for (uint32_t k = 0; k < kInFlight; ++k) {
        if (rank + k >= a_.num_ranks || rank + k == a_.rank) continue;
        const uint64_t* const words = a_.words[a_.rank] + 2 * size_t{(rank + k) * stride + place};
        low[k] = platform_.load_word(words);
        high[k] = platform_.load_word(words + 1);
      }
      SIXFOLD_UNROLL
      for (uint32_t k = 0; k < kInFlight; ++k) {
        if (rank + k >= a_.num_ranks) continue;
        uint64_t contribution = 0;
        if (rank + k == a_.rank) {
          contribution = load(pack);
        } else if (!settle(a_.words[a_.rank] + 2 * size_t{(rank + k) * stride + place}, rank + k, low[k], high[k],
                           contribution)) {
          return false;
        }
        const auto elements = std::bit_cast<Pack<T, kPack>>(contribution);
        SIXFOLD_UNROLL
        for (uint32_t e = 0; e < kPack; ++e) {
          const A own = static_cast<A>(elements.element[e]);
          value[e] = rank + k == 0 ? own : kernels::combine<op>(value[e], own);
        }
      }
    }
    Pack<T, kPack> rounded;
    SIXFOLD_UNROLL
    for (uint32_t e = 0; e < kPack; ++e) {
      if constexpr (op == ReduceOp::Sum && std::is_floating_point_v<A>) value[e] *= a_.scale;
      rounded.element[e] = static_cast<T>(value[e]);
    }
    result = std::bit_cast<uint64_t>(rounded);
    return true;
  }

  Platform& platform_;
  const LowLatencyArguments& a_;
  uint32_t num_packs_, first_, stride_;
};

}  // namespace sixfold::comm
