// Launches of kernels that are written as function objects, over elements or over rows.
//
// nvcc makes a kernel of each and issues it to the context's queue. Other compilers run it at once, on the CPU: the
// same sources, compiled by the host's compiler, are how the tests run every kernel of this folder without a GPU. They
// go from the last element to the first: a kernel may not count on any order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/lanes.h"
#include "kernels/queue.h"

#ifdef __CUDACC__
#include "runtime/core/cuda/cuda_error.h"
#endif

namespace sixfold::kernels::cuda {

/// Threads of a block, for kernels whose threads are all alike.
inline constexpr int kBlockThreads = 256;

/// Who works on one row.
enum class RowBy : uint8_t { Warp, Block };

#ifdef __CUDACC__

/// More blocks than any GPU holds at once: those that find nothing left to do end at once.
inline constexpr int64_t kMaxBlocks = 65535;

inline unsigned num_blocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>(std::clamp<int64_t>((work + per_block - 1) / per_block, 1, kMaxBlocks));
}

template <typename F>
__global__ __launch_bounds__(kBlockThreads, 4) void element_kernel(int64_t num_packs, int64_t count, const F f) {
  const int64_t thread = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x, stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = thread; i < num_packs; i += stride) f.template operator()<kPack>(i * kPack);
  for (int64_t i = num_packs * kPack + thread; i < count; i += stride) f.template operator()<1>(i);
}

template <typename F>
__global__ __launch_bounds__(kBlockThreads) void index_kernel(int64_t count, const F f) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count; i += stride) f(i);
}

// One block at least: without the number, ptxas spills to have more blocks at a time.
template <RowBy by, typename F>
__global__ __launch_bounds__(kBlockThreads, 1) void row_kernel(int64_t num_rows, const F f) {
  if constexpr (by == RowBy::Block) {
    BlockLanes<kBlockThreads> lanes;
    for (int64_t row = blockIdx.x; row < num_rows; row += gridDim.x) f(lanes, row);
  } else {
    WarpLanes lanes;
    constexpr int kRows = kBlockThreads / kWarpSize;  // of a block at a time
    for (int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kWarpSize; row < num_rows;
         row += int64_t{gridDim.x} * kRows) {
      f(lanes, row);
    }
  }
}

inline cudaStream_t stream_of(const Context& context) {
  return static_cast<cudaStream_t>(context.queue->stream());
}

#endif

/// f<n>(i) for elements i .. i + n - 1, n being kPack or 1, that together are [0, count). `addresses`: all that f reads
/// or writes, at the same offset i.
template <typename F>
void for_each_element([[maybe_unused]] Context& context, int64_t count, std::initializer_list<const void*> addresses,
                      const F& f) {
  const int64_t num_packs = takes_packs(0, addresses) ? count / kPack : 0;
#ifdef __CUDACC__
  if (count == 0) return;
  element_kernel<<<num_blocks(num_packs > 0 ? num_packs : count, kBlockThreads), kBlockThreads, 0,
                   stream_of(context)>>>(num_packs, count, f);
  sixfold::cuda::check_cuda(cudaGetLastError(), "launch over elements");
#else
  for (int64_t i = count; i-- > num_packs * kPack;) f.template operator()<1>(i);
  for (int64_t i = num_packs; i-- > 0;) f.template operator()<kPack>(i * kPack);
#endif
}

/// f(i) for each i in [0, count), a thread each.
template <typename F>
void for_each_index([[maybe_unused]] Context& context, int64_t count, const F& f) {
#ifdef __CUDACC__
  if (count == 0) return;
  index_kernel<<<num_blocks(count, kBlockThreads), kBlockThreads, 0, stream_of(context)>>>(count, f);
  sixfold::cuda::check_cuda(cudaGetLastError(), "launch over indices");
#else
  for (int64_t i = count; i-- > 0;) f(i);
#endif
}

/// f(lanes, row) for each row in [0, num_rows), by the lanes of a warp or of a block.
template <RowBy by, typename F>
void for_each_row([[maybe_unused]] Context& context, int64_t num_rows, const F& f) {
#ifdef __CUDACC__
  if (num_rows == 0) return;
  constexpr int64_t kRows = by == RowBy::Block ? 1 : kBlockThreads / kWarpSize;
  row_kernel<by><<<num_blocks(num_rows, kRows), kBlockThreads, 0, stream_of(context)>>>(num_rows, f);
  sixfold::cuda::check_cuda(cudaGetLastError(), "launch over rows");
#else
  OneLane lanes;
  for (int64_t row = num_rows; row-- > 0;) f(lanes, row);
#endif
}

/// body(c) for channels c, c + pack, .. of a row, shared out over the lanes; each call takes `pack` of them.
template <int pack, typename Lanes, typename Body>
SIXFOLD_DEVICE void for_channels(const Lanes& lanes, int64_t count, const Body& body) {
  for (int64_t c = int64_t{lanes.index()} * pack; c < count; c += int64_t{lanes.count()} * pack) body(c);
}

}  // namespace sixfold::kernels::cuda
