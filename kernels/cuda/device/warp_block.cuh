// warp_block.h on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/launch.h"

namespace sixfold::kernels::cuda {

struct alignas(16) Chunk {
  uint32_t word[4];
};

template <typename U>
struct PerLane {
  U value;
  __device__ U& operator[](int) { return value; }
  __device__ const U& operator[](int) const { return value; }
};

template <int kWarps, typename U>
struct PerWarp {
  U value;
  __device__ U& operator[](int) { return value; }
};

class Warp {
 public:
  __device__ int index() const { return static_cast<int>(threadIdx.x) / kWarpSize; }
  template <typename F>
  __device__ void each_lane(const F& f) const {
    f(static_cast<int>(threadIdx.x) % kWarpSize);
  }
  template <int n, typename T>
  __device__ void load(const T* p, float (&values)[n]) const {
    cuda::load(p, values);
  }
  __device__ void sum_of_quads(PerLane<float[2]>& x) const {
    SIXFOLD_UNROLL
    for (float& y : x.value) {
      y += __shfl_xor_sync(~0u, y, 1);
      y += __shfl_xor_sync(~0u, y, 2);
    }
  }
  __device__ void max_of_quads(PerLane<float[2]>& x) const {
    SIXFOLD_UNROLL
    for (float& y : x.value) {
      y = fmaxf(y, __shfl_xor_sync(~0u, y, 1));
      y = fmaxf(y, __shfl_xor_sync(~0u, y, 2));
    }
  }
  __device__ void of_quad(const PerLane<float[4]>& c, int i, int j, PerLane<float>& to) const {
    to.value = __shfl_sync(~0u, c.value[i], j, 4);
  }
  template <bool transposed>
  __device__ void ldmatrix_x4(const PerLane<const void*>& rows, PerLane<uint32_t[4]>& registers) const {
    ptx::ldmatrix_x4<transposed>(registers.value, rows.value);
  }
  __device__ void mma_bf16(PerLane<float[4]>& c, const PerLane<uint32_t[4]>& a, const PerLane<uint32_t[4]>& b,
                           int b0) const {
    ptx::mma_bf16(c.value, a.value, b.value[b0], b.value[b0 + 1]);
  }
};

using ptx::pack_bf16;

template <int kWarps_>
class Block {
 public:
  static constexpr int kWarps = kWarps_, kThreads = kWarps * kWarpSize;
  __device__ explicit Block(std::byte* shared) : shared_(shared) {}

  __device__ std::byte* shared() const { return shared_; }
  template <typename F>
  __device__ void each_thread(const F& f) const {
    f(static_cast<int>(threadIdx.x));
  }
  template <typename F>
  __device__ void each_warp(const F& f) const {
    f(Warp());
  }
  __device__ void sync() const { __syncthreads(); }
  __device__ void copy_async_16(int, void* to, const void* from, int valid_bytes) const {
    ptx::copy_async_16(to, from, valid_bytes);
  }
  __device__ void copy_async_4(int, void* to, const void* from, int valid_bytes) const {
    ptx::copy_async_4(to, from, valid_bytes);
  }
  __device__ void await_copies() const { ptx::await_copies(); }
  __device__ void store_16(int, void* to, const Chunk& chunk) const { *static_cast<Chunk*>(to) = chunk; }

 private:
  std::byte* shared_;
};

template <typename F>
__global__ __launch_bounds__(Block<F::kWarps>::kThreads, F::kBlocksPerSm) void block_kernel(const F f) {
  extern __shared__ __align__(128) std::byte shared[];
  Block<F::kWarps> block(shared);
  f(block, int64_t{blockIdx.x});
}

/// f(block, index) for each index in [0, num_blocks), with F::kSharedBytes of shared memory each.
template <typename F>
void for_each_block(Context& context, int64_t num_blocks, const F& f) {
  if (num_blocks == 0) return;
  if constexpr (F::kSharedBytes > 48 * 1024) {  // more has to be asked for, on each GPU
    sixfold::cuda::check_cuda(cudaFuncSetAttribute(block_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(F::kSharedBytes)),
                              "shared memory of a kernel");
  }
  block_kernel<<<static_cast<unsigned>(num_blocks), Block<F::kWarps>::kThreads, F::kSharedBytes, stream_of(context)>>>(
      f);
  sixfold::cuda::check_cuda(cudaGetLastError(), "launch over blocks");
}

}  // namespace sixfold::kernels::cuda
