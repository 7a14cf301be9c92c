// The kernels: interpret<T, op>, which runs any schedule, and direct<T, op>, an all-reduce by hand.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/reduce.h"
#include "runtime/comm/cuda/direct_all_reduce.h"
#include "runtime/comm/cuda/kernel_control.h"

namespace sixfold::comm {

/// Blocks (channel x split, rank): blockIdx.y is the rank, of those that run in this grid.
struct GridArguments {
  const RankProgram* programs = nullptr;  // of the ranks, in device memory; Input and Output are taken from here
  const void* input[kMaxRanksPerGrid] = {};
  void* output[kMaxRanksPerGrid] = {};
  KernelControl control;
};

/// The two kernels of one dtype and op, as cudaLaunchKernel takes them.
struct KernelPair {
  const void* interpret;  // its argument is one GridArguments; a cooperative launch
  const void* direct;     // its argument is one DirectArguments; blockIdx.y is the rank
};
KernelPair kernels_of(DType dtype, ReduceOp op);
/// One a dtype, each compiled on its own.
KernelPair kernels_f32(ReduceOp op);
KernelPair kernels_bf16(ReduceOp op);
KernelPair kernels_f16(ReduceOp op);
KernelPair kernels_i32(ReduceOp op);
KernelPair kernels_i64(ReduceOp op);
KernelPair kernels_u8(ReduceOp op);

}  // namespace sixfold::comm
