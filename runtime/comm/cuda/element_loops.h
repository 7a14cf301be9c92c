// The loops that move the elements of one piece, by all threads of a block: copies, and fused reductions.
//
// `Platform` says who runs them: a block on a GPU (block_platform.cuh), or one thread of the host interpreter. It
// offers
//
//   uint32_t thread(), num_threads()   of the block
//   V load(const V*)                   16 bytes, or one element, that a peer has written
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/reduce_element.h"

namespace sixfold::comm {

/// The operands of kernels::FusedOperands, for one piece. Any of them may be null.
template <typename T>
struct PieceOperands {
  const T* received = nullptr;
  const void* local = nullptr;
  void* dst = nullptr;
  T* send = nullptr;
  bool local_is_accum = false, dst_is_accum = false;
};

template <typename T, size_t n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T element[n];
};

SIXFOLD_HD inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;  // a null pointer is
}

template <typename To, typename From>
SIXFOLD_HD To* packs_at(From* elements, uint64_t first) {
  return elements == nullptr ? nullptr : reinterpret_cast<To*>(elements + first);
}

/// Packs [first, first + count / n) of n elements each, `unroll` of them in flight in every thread. `value` maps what
/// is read to what is written.
template <typename T, size_t n, int unroll, typename Local, typename Dst, typename Platform, typename Value>
SIXFOLD_HD void for_packs(Platform& platform, const PieceOperands<T>& o, uint64_t first, uint64_t num_packs,
                          const Value& value) {
  using Wire = Pack<T, n>;
  const auto* received = packs_at<const Wire>(o.received, first);
  const auto* local = packs_at<const Pack<Local, n>>(static_cast<const Local*>(o.local), first);
  auto* dst = packs_at<Pack<Dst, n>>(static_cast<Dst*>(o.dst), first);
  auto* send = packs_at<Wire>(o.send, first);
  const uint64_t stride = platform.num_threads();
  for (uint64_t base = platform.thread(); base < num_packs; base += stride * unroll) {
    Wire from_peer[unroll];
    Pack<Local, n> own[unroll];
    SIXFOLD_UNROLL
    for (int u = 0; u < unroll; ++u) {
      const uint64_t i = base + static_cast<uint64_t>(u) * stride;
      if (received != nullptr && i < num_packs) from_peer[u] = platform.load(received + i);
      if (local != nullptr && i < num_packs) own[u] = local[i];
    }
    SIXFOLD_UNROLL
    for (int u = 0; u < unroll; ++u) {
      const uint64_t i = base + static_cast<uint64_t>(u) * stride;
      Pack<Dst, n> kept;
      Wire sent;
      SIXFOLD_UNROLL
      for (size_t e = 0; e < n; ++e) {
        value(from_peer[u].element[e], own[u].element[e], kept.element[e], sent.element[e]);
      }
      if (dst != nullptr && i < num_packs) dst[i] = kept;
      if (send != nullptr && i < num_packs) send[i] = sent;
    }
  }
}

/// All elements: whole packs of 16 bytes where every operand is aligned, and one by one what is left.
template <typename T, typename Local, typename Dst, typename Platform, typename Value>
SIXFOLD_HD void for_elements(Platform& platform, const PieceOperands<T>& o, uint64_t count, const Value& value) {
  constexpr size_t kPack = 16 / sizeof(T);
  // As many loads in flight as registers allow: sums of 16-bit types take two for each that the wire has.
  constexpr bool kWide = sizeof(Local) > sizeof(T) || sizeof(Dst) > sizeof(T);
  constexpr int kUnroll = sizeof(T) == 2 && !kWide ? 8 : (kWide ? 2 : 4);
  uint64_t packed = 0;
  if (is_aligned(o.received) && is_aligned(o.local) && is_aligned(o.dst) && is_aligned(o.send)) {
    packed = count / kPack;
    for_packs<T, kPack, kUnroll, Local, Dst>(platform, o, 0, packed, value);
    packed *= kPack;
  }
  for_packs<T, 1, 1, Local, Dst>(platform, o, packed, count - packed, value);
}

/// dst and send = received or local, unchanged, NaNs and all.
template <typename T, typename Platform>
SIXFOLD_HD void copy_elements(Platform& platform, const PieceOperands<T>& o, uint64_t count) {
  const bool receives = o.received != nullptr;
  for_elements<T, T, T>(platform, o, count, [receives](const T& received, const T& local, T& kept, T& sent) {
    kept = sent = receives ? received : local;
  });
}

/// As kernels::fused_reduce with two operands, or one that is scaled or changes its type.
template <typename T, ReduceOp op, typename Local, typename Dst, typename Platform>
SIXFOLD_HD void reduce_elements(Platform& platform, const PieceOperands<T>& o, uint64_t count, float scale) {
  using A = kernels::Accum<T>;
  const bool both = o.received != nullptr && o.local != nullptr, receives = o.received != nullptr;
  for_elements<T, Local, Dst>(platform, o, count,
                              [both, receives, scale](const T& received, const Local& local, Dst& kept, T& sent) {
                                A value = both ? kernels::combine<op>(static_cast<A>(received), static_cast<A>(local))
                                               : (receives ? static_cast<A>(received) : static_cast<A>(local));
                                // Only an average scales, and it is a sum.
                                if constexpr (op == ReduceOp::Sum && std::is_floating_point_v<A>) value *= scale;
                                kept = static_cast<Dst>(value);
                                sent = static_cast<T>(value);
                              });
}

/// One piece of an instruction. scale: 1 but for the last touch of an average.
template <typename T, ReduceOp op, typename Platform>
SIXFOLD_HD void move_piece(Platform& platform, const PieceOperands<T>& o, uint64_t count, float scale) {
  using A = kernels::Accum<T>;
  const bool reduces = o.received != nullptr && o.local != nullptr;
  if (!reduces && scale == 1.0f && !o.local_is_accum && !o.dst_is_accum) return copy_elements(platform, o, count);
  if constexpr (!std::is_same_v<A, T>) {
    if (o.local_is_accum && o.dst_is_accum) return reduce_elements<T, op, A, A>(platform, o, count, scale);
    if (o.local_is_accum) return reduce_elements<T, op, A, T>(platform, o, count, scale);
    if (o.dst_is_accum) return reduce_elements<T, op, T, A>(platform, o, count, scale);
  }
  reduce_elements<T, op, T, T>(platform, o, count, scale);
}

}  // namespace sixfold::comm
