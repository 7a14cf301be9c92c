// Element-wise reductions and copies that the collectives are made of. Raw pointers, one thread, no allocation: the
// communication layer calls these on slices of buffers and on link slots.
#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/core/dtype.h"

namespace sixfold {

enum class ReduceOp : uint8_t { Sum, Avg, Min, Max, Prod };
inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max,
                                             ReduceOp::Prod};
std::string_view reduce_op_name(ReduceOp op);
/// Throws ConfigError with the allowed names when `name` is none of them.
ReduceOp parse_reduce_op(std::string_view name);

}  // namespace sixfold

namespace sixfold::kernels {

/// The type that partial results are kept in: f32 for bf16 and f16, else the dtype itself.
DType accum_dtype(DType dtype);

/// Avg of integers has no exact meaning and is refused (false); every other pair is supported.
bool reduce_supported(DType dtype, ReduceOp op);

/// One fused action over `count` elements:
///
///   value = received                       where local is null
///         = local                          where received is null
///         = op(received, local)            otherwise; computed in accum_dtype
///   value = value * scale                  where scale != 1 (the last touch of an average)
///   dst[i] = value, send[i] = value        each where not null; rounded to nearest even when stored as 16 bits
///
/// `received` and `send` hold `dtype`. `local` and `dst` hold `dtype`, or accum_dtype where the flag says so. `dst` may
/// be `local` or `received`; other overlaps are not allowed. Pointers need only the alignment of one element. Min and
/// Max return NaN where either operand is NaN, and hold -0 for less than +0. Sums of integers wrap.
struct FusedOperands {
  const void* received = nullptr;
  const void* local = nullptr;
  void* dst = nullptr;
  void* send = nullptr;
  bool local_is_accum = false;
  bool dst_is_accum = false;
};
void fused_reduce(DType dtype, ReduceOp op, const FusedOperands& operands, size_t count, float scale);

}  // namespace sixfold::kernels
