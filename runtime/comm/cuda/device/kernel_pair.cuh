// interpret<T, op> and direct<T, op>, for the files that instantiate them: kernels_TYPE.cu.
#pragma once

#include "runtime/comm/cuda/device/block_platform.cuh"
#include "runtime/comm/cuda/device/kernel_pair.h"

namespace sixfold::comm {

template <typename T, ReduceOp op>
__global__ __launch_bounds__(kBlockThreads) void interpret(const __grid_constant__ GridArguments arguments) {
  __shared__ RankProgram program;
  const uint32_t rank = blockIdx.y;
  if (threadIdx.x == 0) {
    program = arguments.programs[rank];
    program.buffers[static_cast<int>(Buffer::Input)] =
        static_cast<std::byte*>(const_cast<void*>(arguments.input[rank]));
    program.buffers[static_cast<int>(Buffer::Output)] = static_cast<std::byte*>(arguments.output[rank]);
  }
  __syncthreads();
  BlockPlatform platform(arguments.control, rank);
  BlockRun<T, op, BlockPlatform>(platform, program, blockIdx.x / program.num_splits, blockIdx.x % program.num_splits)
      .run();
}

template <typename T, ReduceOp op>
__global__ __launch_bounds__(kBlockThreads) void direct(const __grid_constant__ DirectArguments arguments) {
  const KernelControl none;  // nothing is waited for
  BlockPlatform platform(none, blockIdx.y);
  direct_all_reduce<T, op>(platform, arguments, blockIdx.y, blockIdx.x, gridDim.x);
}

template <typename T, ReduceOp op>
KernelPair pair() {
  return {reinterpret_cast<const void*>(&interpret<T, op>), reinterpret_cast<const void*>(&direct<T, op>)};
}

template <typename T>
KernelPair pair_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return pair<T, ReduceOp::Sum>();
    case ReduceOp::Min:
      return pair<T, ReduceOp::Min>();
    case ReduceOp::Max:
      return pair<T, ReduceOp::Max>();
    case ReduceOp::Prod:
      break;
  }
  return pair<T, ReduceOp::Prod>();
}

}  // namespace sixfold::comm
