// Kernels whose warps work on tiles in shared memory, written once for a GPU and for the tests on a CPU.
//
// A block is a function object: f(block, index) for the blocks of a launch. What each thread of a GPU does for itself
// stands in each_thread, each_warp and each_lane, which on a GPU call their argument once, for the calling thread, and
// on the CPU for all threads, warps or lanes, one after the other. What such a piece leaves for a later one lies in
// PerLane and PerWarp: registers on a GPU, arrays on the CPU. What lanes do together, shuffles and tensor cores, are
// functions of Warp, called between each_lane.
//
// Block<kWarps>:
//   shared()                      the block's shared memory, 128-byte aligned
//   each_thread(f), each_warp(f)  f(thread); f(warp)
//   sync()                        barrier of the block and of its shared memory
//   copy_async_16(thread, to, from, valid_bytes), copy_async_4    to shared memory, the rest of the 16 or 4 bytes 0
//   await_copies()                the calling thread's have arrived; others see them after sync()
//   store_16(thread, to, chunk)   16 bytes into shared memory
// Warp:
//   index()                       in the block
//   each_lane(f)                  f(lane)
//   load(p, values)               from shared memory, as load() of elements.h
//   sum_of_quads, max_of_quads    over the four lanes 4g .. 4g + 3, the same in each
//   of_quad(c, i, j, to)          element i of what lane 4g + j holds, in each lane of the quad
//   ldmatrix_x4, mma_bf16         device/mma.cuh
#pragma once

#ifdef __CUDACC__
#include "kernels/cuda/device/warp_block.cuh"
#else
#include "kernels/cuda/emulated_warp_block.h"
#endif

namespace sixfold::kernels::cuda {

/// Shared memory that every GPU of sm_80 and later gives a block (sm_86, sm_89: 99 KB).
inline constexpr size_t kMaxSharedBytes = 99 * 1024;

}  // namespace sixfold::kernels::cuda
