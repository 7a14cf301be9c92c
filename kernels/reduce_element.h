// One element of a reduction: what the loops of all devices compute, so that all give the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/reduce.h"
#include "runtime/core/host_device.h"

namespace sixfold::kernels {

template <typename T>
inline constexpr bool kIs16Bit = std::is_same_v<T, BF16> || std::is_same_v<T, F16>;
/// The type of accum_dtype().
template <typename T>
using Accum = std::conditional_t<kIs16Bit<T>, float, T>;

/// Min or Max. Commutes bit for bit, because ranks that add in the same order may still see their operands swapped: -0
/// counts as
/// less than +0, and a NaN in either operand gives the one canonical NaN.
template <ReduceOp op, typename A>
SIXFOLD_HD A extremum(A a, A b) {
  const A value = (op == ReduceOp::Min ? a < b : a > b) ? a : b;
  if constexpr (std::is_floating_point_v<A>) {
    const auto x = std::bit_cast<uint32_t>(a), y = std::bit_cast<uint32_t>(b);
    const A of_equals = std::bit_cast<A>(op == ReduceOp::Min ? x | y : x & y);
    const A number = a == b ? of_equals : value;
    return a != a || b != b ? std::numeric_limits<A>::quiet_NaN() : number;
  }
  return value;
}

/// op(a, b), in the type that partial results are kept in; Avg adds, as Sum does.
template <ReduceOp op, typename A>
SIXFOLD_HD A combine(A a, A b) {
  if constexpr (op == ReduceOp::Min || op == ReduceOp::Max) {
    return extremum<op>(a, b);
  } else if constexpr (std::is_integral_v<A>) {
    // Unsigned, so that overflow wraps instead of being undefined. 64 bits hold every product modulo 2^bits.
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<A>(op == ReduceOp::Prod ? x * y : x + y);
  } else {
    return op == ReduceOp::Prod ? a * b : a + b;
  }
}

}  // namespace sixfold::kernels
