// A product of row-major matrices in the terms of cuBLASLt, which has column-major ones.
//
// A row-major matrix is, read by columns, its transpose; so c = op(a) op(b) is had as c^T = op(b)^T op(a)^T: the
// library's first operand is our second, and its m is our n.
#pragma once

#include <compare>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include "kernels/cuda/gemm.h"

namespace sixfold::kernels::cuda {

/// Element (i, j) is i + j * ld elements from the start, and matrix x of a batch x * batch_stride.
struct LtMatrix {
  DType dtype;
  int64_t rows, columns, ld, batch_stride;
  int64_t alignment;  // bytes, see alignment_of()
  auto operator<=>(const LtMatrix&) const = default;
};

/// All that an algorithm is chosen by: c [m, n] = alpha op(a) [m, k] op(b) [k, n] + beta c.
struct LtProblem {
  bool transpose_a, transpose_b;
  int64_t m, n, k, batch;
  LtMatrix a, b, c;
  bool accumulate;  // beta is 1, else 0
  Epilogue epilogue;
  int64_t bias_alignment, aux_alignment;
  auto operator<=>(const LtProblem&) const = default;
};

/// The largest power of two, up to 256, that divides the address. 256 for none.
inline int64_t alignment_of(const void* address) {
  constexpr uintptr_t kLargest = 256;  // of an algorithm's wishes
  const uintptr_t bits = reinterpret_cast<uintptr_t>(address) | kLargest;
  return static_cast<int64_t>(bits & (~bits + 1));
}

inline LtProblem lt_problem(const Gemm& g) {
  const auto stored = [](const GemmOperand& x, int64_t rows, int64_t columns) {
    if (x.transposed) std::swap(rows, columns);  // as they lie in memory, by rows
    return LtMatrix{x.dtype, columns, rows, x.stride, x.batch_stride, alignment_of(x.data)};
  };
  return {g.b.transposed,
          g.a.transposed,
          g.n,
          g.m,
          g.k,
          g.batch,
          stored(g.b, g.k, g.n),
          stored(g.a, g.m, g.k),
          stored(g.c, g.m, g.n),
          g.accumulate,
          g.epilogue,
          alignment_of(g.bias),
          alignment_of(g.aux)};
}

/// For messages, in our own terms: "matrix product [64, 768] x [768, 2304], bf16 to bf16, epilogue 2". ^T: of a matrix
/// that is stored the other way round.
inline std::string describe(const LtProblem& p) {
  std::ostringstream text;
  text << "matrix product [" << p.n << ", " << p.k << "]" << (p.transpose_b ? "^T" : "") << " x [" << p.k << ", " << p.m
       << "]" << (p.transpose_a ? "^T" : "") << ", " << dtype_name(p.a.dtype) << " to " << dtype_name(p.c.dtype);
  if (p.batch != 1) text << ", batch of " << p.batch;
  if (p.accumulate) text << ", accumulated";
  if (p.epilogue != Epilogue::None) text << ", epilogue " << static_cast<int>(p.epilogue);
  return text.str();
}

}  // namespace sixfold::kernels::cuda
