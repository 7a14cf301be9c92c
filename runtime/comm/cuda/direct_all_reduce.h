// direct all-reduce of ranks that reach one another's buffers, written by hand: no slots, no flags, no steps.
//
// Rank r owns part r of the buffer. It reads that part of all inputs, adds them in rank order in the accumulator's
// type, rounds once, and writes the result to all outputs. An element is read and written by one thread alone, so in
// place needs no care. All ranks together read N S and write N S bytes: 2 N S, the least there is, where the staged
// ring moves (6 N - 4) S through the same memory.
//
// It asks for every input to be ready and every output to be free when it starts, which a launch for the whole group
// gives (meeting.h). The bits are those of the algorithm `direct` (schedule/direct.cpp).
#pragma once

#include "runtime/comm/cuda/element_loops.h"

namespace sixfold::comm {

inline constexpr int kMaxRanksPerGrid = 16;  // as many as the arguments of a kernel hold

struct DirectArguments {
  const void* input[kMaxRanksPerGrid] = {};
  void* output[kMaxRanksPerGrid] = {};
  uint64_t begin[kMaxRanksPerGrid + 1] = {};  // of each rank's part, whole packs; the last one is the count
  uint32_t num_ranks = 0;
  bool aligned = false;  // all buffers, to 16 bytes
  float scale = 1;       // of an average: 1 / num_ranks
};

/// n elements from `first` on.
template <typename T, ReduceOp op, uint32_t n, typename Platform>
SIXFOLD_DEVICE void direct_pack(Platform& platform, const DirectArguments& a, uint64_t first) {
  using A = kernels::Accum<T>;
  constexpr uint32_t kInFlight = 4;  // loads
  A value[n];
  for (uint32_t rank = 0; rank < a.num_ranks; rank += kInFlight) {
    Bits<Pack<T, n>> loaded[kInFlight];
    SIXFOLD_UNROLL
    for (uint32_t k = 0; k < kInFlight; ++k) {
      if (rank + k >= a.num_ranks) continue;
      loaded[k] =
          platform.load(bits_at(packs_at<const Pack<T, n>>(static_cast<const T*>(a.input[rank + k]) + first, 0)));
    }
    SIXFOLD_UNROLL
    for (uint32_t k = 0; k < kInFlight; ++k) {
      if (rank + k >= a.num_ranks) continue;
      const auto pack = std::bit_cast<Pack<T, n>>(loaded[k]);
      SIXFOLD_UNROLL
      for (uint32_t e = 0; e < n; ++e) {
        const A own = static_cast<A>(pack.element[e]);
        value[e] = rank + k == 0 ? own : kernels::combine<op>(value[e], own);
      }
    }
  }
  Pack<T, n> result;
  SIXFOLD_UNROLL
  for (uint32_t e = 0; e < n; ++e) {
    if constexpr (op == ReduceOp::Sum && std::is_floating_point_v<A>) value[e] *= a.scale;
    result.element[e] = static_cast<T>(value[e]);
  }
  for (uint32_t rank = 0; rank < a.num_ranks; ++rank) {
    *reinterpret_cast<Pack<T, n>*>(static_cast<T*>(a.output[rank]) + first) = result;
  }
}

/// What block `block` of `num_blocks` of `rank` does; called by all its threads.
template <typename T, ReduceOp op, typename Platform>
SIXFOLD_DEVICE void direct_all_reduce(Platform& platform, const DirectArguments& a, uint32_t rank, uint32_t block,
                                      uint32_t num_blocks) {
  constexpr uint32_t kPack = 16 / sizeof(T);
  const uint64_t begin = a.begin[rank], count = a.begin[rank + 1] - begin;
  const uint64_t num_packs = a.aligned ? count / kPack : 0;
  const uint64_t first = uint64_t{block} * platform.num_threads() + platform.thread();
  const uint64_t stride = uint64_t{num_blocks} * platform.num_threads();
  for (uint64_t i = first; i < num_packs; i += stride) direct_pack<T, op, kPack>(platform, a, begin + i * kPack);
  for (uint64_t i = num_packs * kPack + first; i < count; i += stride) direct_pack<T, op, 1>(platform, a, begin + i);
}

/// Cuts `count` elements into parts of whole packs, and says whether packs can be read as such.
inline void set_parts(DirectArguments& a, uint64_t count, size_t element_bytes) {
  const uint64_t pack = 16 / element_bytes, num_packs = (count + pack - 1) / pack;
  a.aligned = true;
  for (uint32_t rank = 0; rank < a.num_ranks; ++rank) {
    a.aligned = a.aligned && is_aligned(a.input[rank]) && is_aligned(a.output[rank]);
    a.begin[rank] = num_packs * rank / a.num_ranks * pack;
  }
  a.begin[a.num_ranks] = count;
}

/// What peers read of rank `rank`'s input, and what it writes to theirs.
inline uint64_t direct_sent_elements(const DirectArguments& a, uint32_t rank) {
  const uint64_t own = a.begin[rank + 1] - a.begin[rank], all = a.begin[a.num_ranks];
  return (all - own) + own * (a.num_ranks - 1);
}

}  // namespace sixfold::comm
