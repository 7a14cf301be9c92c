// Fused reduce / copy loops. One template, instantiated for every (dtype, op, operands present); the compiler
// vectorises the inner loops.
#include "kernels/reduce.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernels/far_copy.h"
#include "kernels/reduce_element.h"

// A build that is not for the CPU at hand (SIXFOLD_NATIVE=OFF) carries the loops once for each width of vectors; the
// loader picks. `flatten`, because only what is inlined is compiled anew. Not under ThreadSanitizer, which is not ready
// yet when the loader picks.
#if defined(__x86_64__) && defined(__linux__) && !defined(__AVX2__) && !defined(__SANITIZE_THREAD__)
#define SIXFOLD_FOR_EVERY_CPU __attribute__((flatten, target_clones("avx512f", "avx2", "default")))
#else
#define SIXFOLD_FOR_EVERY_CPU
#endif

namespace sixfold {

std::string_view reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "sum";
    case ReduceOp::Avg:
      return "avg";
    case ReduceOp::Min:
      return "min";
    case ReduceOp::Max:
      return "max";
    case ReduceOp::Prod:
      return "prod";
  }
  return "unknown";
}

ReduceOp parse_reduce_op(std::string_view name) {
  for (ReduceOp op : kAllReduceOps) {
    if (reduce_op_name(op) == name) return op;
  }
  throw ConfigError("reduction '" + std::string(name) + "': allowed are sum, avg, min, max, prod");
}

}  // namespace sixfold

namespace sixfold::kernels {

namespace {

// Everything that differs between the instances is a template parameter, so that the loop has no branch.
template <ReduceOp op, typename T, typename Local, typename Dst, bool scaled>
void loop(const T* received, const Local* local, Dst* dst, T* send, size_t count, float scale) {
  using A = Accum<T>;
  const auto value_at = [&](size_t i) {
    A value = static_cast<A>(local[i]);
    if (received != nullptr) value = combine<op>(static_cast<A>(received[i]), value);
    if constexpr (scaled) value *= scale;
    return value;
  };
  // The tests of pointers are outside the loops: each loop is one straight line of vector code. dst may be local or
  // received, element by element, which does not hinder vectorising (ivdep).
  if (dst != nullptr && send != nullptr) {
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i) {
      const A value = value_at(i);
      dst[i] = static_cast<Dst>(value);
      send[i] = static_cast<T>(value);
    }
  } else if (dst != nullptr) {
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i) dst[i] = static_cast<Dst>(value_at(i));
  } else if (send != nullptr) {
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i) send[i] = static_cast<T>(value_at(i));
  }
}

template <ReduceOp op, typename T, typename Local, typename Dst>
void with_scale(const FusedOperands& o, size_t count, float scale) {
  // A value that is only received takes the place of `local`: the two are alike when there is no reduction.
  const auto* received = static_cast<const T*>(o.received);
  const auto* local = static_cast<const Local*>(o.local);
  auto* dst = static_cast<Dst*>(o.dst);
  auto* send = static_cast<T*>(o.send);
  // Only an average scales, and it is a sum.
  if constexpr (op == ReduceOp::Sum && std::is_floating_point_v<Accum<T>>) {
    if (scale != 1.0f) return loop<op, T, Local, Dst, true>(received, local, dst, send, count, scale);
  }
  loop<op, T, Local, Dst, false>(received, local, dst, send, count, scale);
}

template <ReduceOp op, typename T>
void with_operand_types(FusedOperands o, size_t count, float scale) {
  using A = Accum<T>;
  if (o.local == nullptr) {  // see with_scale
    o.local = o.received;
    o.received = nullptr;
    o.local_is_accum = false;
  }
  if constexpr (kIs16Bit<T>) {
    if (o.local_is_accum) {
      return o.dst_is_accum ? with_scale<op, T, A, A>(o, count, scale) : with_scale<op, T, A, T>(o, count, scale);
    }
    if (o.dst_is_accum) return with_scale<op, T, T, A>(o, count, scale);
  }
  with_scale<op, T, T, T>(o, count, scale);
}

// A copy of unchanged elements.
bool plain_copy(const FusedOperands& o, DType dtype, float scale) {
  const bool one_source = (o.received == nullptr) != (o.local == nullptr);
  const bool converts = accum_dtype(dtype) != dtype && (o.local_is_accum || o.dst_is_accum);
  return one_source && scale == 1.0f && !converts;
}

}  // namespace

DType accum_dtype(DType dtype) {
  return dtype == DType::BF16 || dtype == DType::F16 ? DType::F32 : dtype;
}

bool reduce_supported(DType dtype, ReduceOp op) {
  return op != ReduceOp::Avg || dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
}

namespace {

SIXFOLD_FOR_EVERY_CPU
void reduce(DType dtype, ReduceOp op, const FusedOperands& o, size_t count, float scale) {
  dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    switch (op) {
      case ReduceOp::Sum:
      case ReduceOp::Avg:
        return with_operand_types<ReduceOp::Sum, T>(o, count, scale);
      case ReduceOp::Min:
        return with_operand_types<ReduceOp::Min, T>(o, count, scale);
      case ReduceOp::Max:
        return with_operand_types<ReduceOp::Max, T>(o, count, scale);
      case ReduceOp::Prod:
        return with_operand_types<ReduceOp::Prod, T>(o, count, scale);
    }
  });
}

/// The operands from element `first` on.
FusedOperands from(const FusedOperands& o, DType dtype, size_t first) {
  const size_t offset = first * dtype_bytes(dtype), accum_offset = first * dtype_bytes(accum_dtype(dtype));
  const auto moved = [](auto* pointer, size_t bytes) {
    using Byte =
        std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(pointer)>>, const std::byte, std::byte>;
    return pointer == nullptr ? pointer : static_cast<Byte*>(pointer) + bytes;
  };
  FusedOperands rest = o;
  rest.received = moved(o.received, offset);
  rest.local = moved(o.local, o.local_is_accum ? accum_offset : offset);
  rest.dst = moved(o.dst, o.dst_is_accum ? accum_offset : offset);
  rest.send = moved(o.send, offset);
  return rest;
}

}  // namespace

void fused_reduce(DType dtype, ReduceOp op, const FusedOperands& o, size_t count, float scale) {
  if (count == 0) return;
  const size_t element_bytes = dtype_bytes(dtype);
  if (plain_copy(o, dtype, scale)) {
    const void* source = o.received != nullptr ? o.received : o.local;
    const size_t bytes = count * element_bytes;
    if (o.dst != nullptr && o.dst != source) std::memcpy(o.dst, source, bytes);
    if (o.send != nullptr) far_copy(o.send, source, bytes);
    return;
  }
  // What has just been received from where the result goes is in this core's cache now, so plain stores are best.
  if (o.send == nullptr || o.send == o.received) return reduce(dtype, op, o, count, scale);
  // Else results go there by whole lines, from where the first-level cache has them.
  constexpr size_t kChunkBytes = 8192;
  alignas(64) std::byte chunk[kChunkBytes];
  const size_t chunk_count = kChunkBytes / element_bytes;
  for (size_t first = 0; first < count; first += chunk_count) {
    const size_t n = std::min(chunk_count, count - first);
    FusedOperands part = from(o, dtype, first);
    void* const far = part.send;
    const bool kept = part.dst != nullptr && !part.dst_is_accum;
    part.send = kept ? nullptr : chunk;
    reduce(dtype, op, part, n, scale);
    far_copy(far, kept ? part.dst : chunk, n * element_bytes);
  }
}

}  // namespace sixfold::kernels
