// Lanes: the threads that work on one row of a tensor together, and what they can do together.
//
//   lanes.index(), lanes.count()   this thread, of how many
//   lanes.sum(x), lanes.max(x)     over all of them, the same in each; every lane calls it. x: float, sum's also double
//   lanes.sync()                   what a lane wrote to shared or global memory before it, all see after it
//
// Kernels are function objects that take Lanes as a template argument. nvcc makes kernels of them (launch.h) with warps
// or blocks as lanes; another compiler runs them on the CPU, row by row with one lane, which is how they are tested
// where there is no GPU.
#pragma once

#include <cstdint>

#include "runtime/core/host_device.h"

namespace sixfold::kernels::cuda {

/// The CPU: one thread is all lanes.
struct OneLane {
  static constexpr int count() { return 1; }
  int index() const { return 0; }
  template <typename T>
  T sum(T x) const {
    return x;
  }
  float max(float x) const { return x; }
  void sync() const {}
};

#ifdef __CUDACC__

inline constexpr int kWarpSize = 32;

struct WarpLanes {
  __device__ static constexpr int count() { return kWarpSize; }
  __device__ int index() const { return static_cast<int>(threadIdx.x) % kWarpSize; }
  template <typename T>
  __device__ T sum(T x) const {
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
  }
  __device__ float max(float x) const {
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    }
    return x;
  }
  __device__ void sync() const { __syncwarp(); }
};

/// All threads of a block.
template <int num_threads>
struct BlockLanes {
  static constexpr int kWarps = num_threads / kWarpSize;
  __device__ static constexpr int count() { return num_threads; }
  __device__ int index() const { return static_cast<int>(threadIdx.x); }
  template <typename T>
  __device__ T sum(T x) const {
    return over_warps(WarpLanes().sum(x), T{0}, [](const WarpLanes& warp, T y) { return warp.sum(y); });
  }
  __device__ float max(float x) const {
    return over_warps(WarpLanes().max(x), -INFINITY, [](const WarpLanes& warp, float y) { return warp.max(y); });
  }
  __device__ void sync() const { __syncthreads(); }

 private:
  /// Combines one value a warp, in the same way in each warp, so that all lanes get the same bits.
  template <typename T, typename Combine>
  __device__ T over_warps(T of_warp, T neutral, const Combine& combine) const {
    __shared__ T values[kWarps];
    const int lane = index() % kWarpSize;
    if (lane == 0) values[index() / kWarpSize] = of_warp;
    __syncthreads();
    const T result = combine(WarpLanes(), lane < kWarps ? values[lane] : neutral);
    __syncthreads();  // the values may be written again
    return result;
  }
};

#endif

}  // namespace sixfold::kernels::cuda
