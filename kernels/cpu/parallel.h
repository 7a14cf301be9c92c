// Loops over pieces of work. Pieces have a fixed size, so which thread takes which piece never changes a result.
//
// Without OpenMP (SIXFOLD_OPENMP=OFF) the same pieces run one after the other.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/cpu/temporaries.h"
#include "kernels/kernels.h"

namespace sixfold::kernels {

/// Elements of one piece of an element-wise kernel: large enough to pay for handing it out, small enough for a cache.
inline constexpr int64_t kElementsPerPiece = 16384;

/// body(i) for each i in [0, count), on up to num_threads threads, in any order. body must not throw.
template <typename Body>
void parallel_for([[maybe_unused]] int num_threads, int64_t count, Body&& body) {
#ifdef _OPENMP
  if (num_threads > 1 && count > 1) {
    // Dynamic: a thread that another program slows down takes fewer pieces.
#pragma omp parallel for num_threads(num_threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#endif
  for (int64_t i = 0; i < count; ++i) body(i);
}

/// How long a piece takes: of long ones, some tenths of a millisecond, every one is followed by context.between() where
/// the calling thread works alone. Threads call it once at the end, since no exception may leave a parallel loop.
enum class Pieces : uint8_t { Short, Long };
template <typename Body>
void parallel_for(Context& context, Pieces pieces, int64_t count, Body&& body) {
  const bool calls = pieces == Pieces::Long && context.between;
  if (calls && context.num_threads <= 1) {
    for (int64_t i = 0; i < count; ++i) {
      body(i);
      context.between();
    }
    return;
  }
  parallel_for(context.num_threads, count, body);
  if (calls) context.between();
}

/// body(begin, end) for consecutive ranges of `grain` items (the last may be shorter) that together are [0, count).
template <typename Body>
void parallel_ranges(int num_threads, int64_t count, int64_t grain, Body&& body) {
  parallel_for(num_threads, (count + grain - 1) / grain,
               [&](int64_t i) { body(i * grain, std::min(count, (i + 1) * grain)); });
}

/// As parallel_for; body(i, scratch) also gets `num_floats` uninitialised floats that no other thread uses meanwhile.
template <typename Body>
void parallel_for_with_scratch(Context& context, Pieces pieces, int64_t count, int64_t num_floats, Body&& body) {
  const auto bytes = static_cast<size_t>(cpu::scratch_bytes(num_floats, context.num_threads));
  const auto block = context.memory.allocate(bytes, Category::Activations);
  float* scratch = static_cast<float*>(block.get());
  parallel_for(context, pieces, count, [&](int64_t i) {
#ifdef _OPENMP
    body(i, scratch + omp_get_thread_num() * cpu::scratch_stride(num_floats));
#else
    body(i, scratch);
#endif
  });
}

/// Rows of one piece of a kernel that works on rows of `row_size` elements.
inline int64_t rows_per_piece(int64_t row_size) {
  return std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, row_size));
}

}  // namespace sixfold::kernels
