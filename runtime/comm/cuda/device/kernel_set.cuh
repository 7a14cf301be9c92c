// The kernels, for the files that instantiate them: kernels_TYPE.cu.
#pragma once

#include "runtime/comm/cuda/device/block_platform.cuh"
#include "runtime/comm/cuda/device/kernel_set.h"

namespace sixfold::comm {

/// By one thread: the program of a rank, with the buffers of this launch.
__device__ inline RankProgram program_of(const GridArguments& arguments, uint32_t index) {
  RankProgram program = arguments.programs[index];
  program.buffers[static_cast<int>(Buffer::Input)] = static_cast<std::byte*>(const_cast<void*>(arguments.input[index]));
  program.buffers[static_cast<int>(Buffer::Output)] = static_cast<std::byte*>(arguments.output[index]);
  return program;
}

template <typename T, ReduceOp op>
__global__ __launch_bounds__(kBlockThreads) void interpret(const __grid_constant__ GridArguments arguments) {
  __shared__ RankProgram program;
  if (threadIdx.x == 0) program = program_of(arguments, blockIdx.y);
  __syncthreads();
  BlockPlatform platform(arguments.control, arguments.first_rank + blockIdx.y);
  ProgramRun<T, op, BlockPlatform>(platform, program, blockIdx.x / program.num_splits, blockIdx.x % program.num_splits)
      .run();
}

template <typename T, ReduceOp op>
__global__ __launch_bounds__(kBlockThreads) void slice(const __grid_constant__ SliceArguments arguments) {
  __shared__ RankProgram program;
  if (threadIdx.x == 0) program = program_of(arguments.grid, 0);
  __syncthreads();
  GridPlatform platform(arguments.grid.control, arguments.grid.first_rank);
  ProgramRun<T, op, GridPlatform>(platform, program, arguments.order.channel, 0).run_slice(arguments.order);
}

template <typename T, ReduceOp op>
__global__ __launch_bounds__(kBlockThreads) void direct(const __grid_constant__ DirectArguments arguments) {
  const KernelControl none;  // nothing is waited for
  BlockPlatform platform(none, blockIdx.y);
  direct_all_reduce<T, op>(platform, arguments, blockIdx.y, blockIdx.x, gridDim.x);
}

template <typename T, ReduceOp op>
__global__ __launch_bounds__(kBlockThreads, 1) void low_latency(const __grid_constant__ WordArguments arguments) {
  BlockPlatform platform(arguments.control, arguments.all_reduce.rank);
  LowLatencyRun<T, op, BlockPlatform>(platform, arguments.all_reduce, blockIdx.x, gridDim.x).run();
}

template <typename T, ReduceOp op>
KernelSet set() {
  return {reinterpret_cast<const void*>(&interpret<T, op>), reinterpret_cast<const void*>(&slice<T, op>),
          reinterpret_cast<const void*>(&direct<T, op>), reinterpret_cast<const void*>(&low_latency<T, op>)};
}

template <typename T>
KernelSet set_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return set<T, ReduceOp::Sum>();
    case ReduceOp::Min:
      return set<T, ReduceOp::Min>();
    case ReduceOp::Max:
      return set<T, ReduceOp::Max>();
    case ReduceOp::Prod:
      break;
  }
  return set<T, ReduceOp::Prod>();
}

}  // namespace sixfold::comm
