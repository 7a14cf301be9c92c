// The loops that move the elements of one piece, by all threads of a block: copies, and fused reductions.
//
// `Platform` says who runs them: a block on a GPU (block_platform.cuh), or one thread of the host interpreter. It
// offers
//
//   uint32_t thread(), num_threads()   of the block; a constant, so that addresses differ by constants
//   V load(const V*)                   16 bytes, or one element, that a peer has written
//   void pin(Words&)                   the compiler takes the words apart after this and not before
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

template <typename T, uint32_t n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T element[n];
};

/// A pack as the words that it is loaded as, or its one element.
template <typename P, bool words = sizeof(P) % 16 == 0>
struct BitsOf {
  struct __attribute__((may_alias, aligned(16))) type {
    uint32_t word[sizeof(P) / 4];
  };
};
template <typename P>
struct BitsOf<P, false> {
  using type = P;
};
template <typename P>
using Bits = typename BitsOf<P>::type;

template <typename P>
SIXFOLD_DEVICE const Bits<P>* bits_at(const P* pack) {
  return reinterpret_cast<const Bits<P>*>(pack);
}

SIXFOLD_HD inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;  // a null pointer is
}

template <typename To, typename From>
SIXFOLD_DEVICE To* packs_at(From* elements, uint32_t first) {
  return elements == nullptr ? nullptr : reinterpret_cast<To*>(elements + first);
}

/// Packs [first, first + count / n) of n elements each, `unroll` of them in flight in every thread. `value` maps what
/// is read to what is written.
template <typename T, uint32_t n, int unroll, typename Local, typename Dst, typename Platform, typename Value>
SIXFOLD_DEVICE void for_packs(Platform& platform, const PieceOperands<T>& o, uint32_t first, uint32_t num_packs,
                              const Value& value) {
  using Wire = Pack<T, n>;
  const auto* received = packs_at<const Wire>(o.received, first);
  const auto* local = packs_at<const Pack<Local, n>>(static_cast<const Local*>(o.local), first);
  auto* dst = packs_at<Pack<Dst, n>>(static_cast<Dst*>(o.dst), first);
  auto* send = packs_at<Wire>(o.send, first);
  const uint32_t stride = platform.num_threads();
  for (uint32_t base = platform.thread(); base < num_packs; base += stride * unroll) {
    // Bits, not elements: a GPU would keep each narrow element in a register of its own.
    Bits<Wire> from_peer[unroll];
    Bits<Pack<Local, n>> own[unroll];
    SIXFOLD_UNROLL
    for (int u = 0; u < unroll; ++u) {
      const uint32_t i = base + static_cast<uint32_t>(u) * stride;
      if (received != nullptr && i < num_packs) from_peer[u] = platform.load(bits_at(received + i));
      if (local != nullptr && i < num_packs) own[u] = *bits_at(local + i);
    }
    SIXFOLD_UNROLL
    for (int u = 0; u < unroll; ++u) {
      const uint32_t i = base + static_cast<uint32_t>(u) * stride;
      platform.pin(from_peer[u]);
      platform.pin(own[u]);
      const auto received_pack = std::bit_cast<Wire>(from_peer[u]);
      const auto own_pack = std::bit_cast<Pack<Local, n>>(own[u]);
      Pack<Dst, n> kept;
      Wire sent;
      SIXFOLD_UNROLL
      for (uint32_t e = 0; e < n; ++e) {
        value(received_pack.element[e], own_pack.element[e], kept.element[e], sent.element[e]);
      }
      if (dst != nullptr && i < num_packs) dst[i] = kept;
      if (send != nullptr && i < num_packs) send[i] = sent;
    }
  }
}

template <typename T>
SIXFOLD_DEVICE bool all_aligned(const PieceOperands<T>& o) {
  return is_aligned(o.received) && is_aligned(o.local) && is_aligned(o.dst) && is_aligned(o.send);
}

/// dst and send = received or local, unchanged, NaNs and all: as words where every operand is aligned.
template <typename T, typename Platform>
SIXFOLD_DEVICE void copy_elements(Platform& platform, const PieceOperands<T>& o, uint32_t count) {
  using Words = Bits<Pack<uint32_t, 4>>;
  constexpr uint32_t kPack = sizeof(Words) / sizeof(T);
  constexpr int kUnroll = 4;
  const bool receives = o.received != nullptr;
  const T* from = receives ? o.received : static_cast<const T*>(o.local);
  T* const dst = static_cast<T*>(o.dst);
  const uint32_t num_packs = all_aligned(o) ? count / kPack : 0, stride = platform.num_threads();
  const auto* words = reinterpret_cast<const Words*>(from);
  for (uint32_t base = platform.thread(); base < num_packs; base += stride * kUnroll) {
    Words moved[kUnroll];
    SIXFOLD_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const uint32_t i = base + static_cast<uint32_t>(u) * stride;
      if (i < num_packs) moved[u] = receives ? platform.load(words + i) : words[i];
    }
    SIXFOLD_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const uint32_t i = base + static_cast<uint32_t>(u) * stride;
      if (dst != nullptr && i < num_packs) reinterpret_cast<Words*>(dst)[i] = moved[u];
      if (o.send != nullptr && i < num_packs) reinterpret_cast<Words*>(o.send)[i] = moved[u];
    }
  }
  for (uint32_t i = num_packs * kPack + platform.thread(); i < count; i += stride) {
    const T value = receives ? platform.load(from + i) : from[i];
    if (dst != nullptr) dst[i] = value;
    if (o.send != nullptr) o.send[i] = value;
  }
}

/// All elements: whole packs of 16 bytes of the wire where every operand is aligned, and one by one what is left.
template <typename T, typename Local, typename Dst, typename Platform, typename Value>
SIXFOLD_DEVICE void for_elements(Platform& platform, const PieceOperands<T>& o, uint32_t count, const Value& value) {
  constexpr uint32_t kPack = 16 / sizeof(T);
  // As many loads in flight as registers allow: accumulators take twice as many, narrow types are taken apart into
  // many, and rounding to f16 takes more of them than rounding to bf16.
  constexpr bool kWide = sizeof(Local) > sizeof(T) || sizeof(Dst) > sizeof(T);
  constexpr int kUnroll = kWide || std::is_same_v<T, F16> ? 1 : (sizeof(T) < 4 ? 2 : 4);
  uint32_t packed = 0;
  if (all_aligned(o)) {
    packed = count / kPack;
    for_packs<T, kPack, kUnroll, Local, Dst>(platform, o, 0, packed, value);
    packed *= kPack;
  }
  for_packs<T, 1, 1, Local, Dst>(platform, o, packed, count - packed, value);
}

/// As kernels::fused_reduce with two operands, or one that is scaled or changes its type.
template <typename T, ReduceOp op, typename Local, typename Dst, typename Platform>
SIXFOLD_DEVICE void reduce_elements(Platform& platform, const PieceOperands<T>& o, uint32_t count, float scale) {
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
SIXFOLD_DEVICE void move_piece(Platform& platform, const PieceOperands<T>& o, uint32_t count, float scale) {
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
