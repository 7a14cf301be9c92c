// The kernels of one dtype and op: interpret, which runs any schedule; slice, which moves one slice of it; direct and
// low_latency, all-reduces by hand.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/reduce.h"
#include "runtime/comm/cuda/direct_all_reduce.h"
#include "runtime/comm/cuda/kernel_control.h"
#include "runtime/comm/cuda/low_latency.h"

namespace sixfold::comm {

/// Blocks (channel x split, rank): blockIdx.y counts the ranks that run in this grid.
struct GridArguments {
  uint32_t first_rank = 0;                // of them, for who asks where a block is stuck
  const RankProgram* programs = nullptr;  // of the ranks, in device memory; Input and Output are taken from here
  const void* input[kMaxRanksPerGrid] = {};
  void* output[kMaxRanksPerGrid] = {};
  KernelControl control;
};

struct SliceArguments {
  GridArguments grid;  // of one rank
  SliceOrder order;
};

struct WordArguments {
  LowLatencyArguments all_reduce;
  KernelControl control;
};

/// As cudaLaunchKernel takes them. Each has one argument.
struct KernelSet {
  const void* interpret;    // GridArguments; all blocks must be resident at once
  const void* slice;        // SliceArguments; any number of blocks
  const void* direct;       // DirectArguments; blockIdx.y is the rank
  const void* low_latency;  // WordArguments; all blocks of all ranks must be resident at once
};
KernelSet kernels_of(DType dtype, ReduceOp op);
/// One a dtype, each compiled on its own.
KernelSet kernels_f32(ReduceOp op);
KernelSet kernels_bf16(ReduceOp op);
KernelSet kernels_f16(ReduceOp op);
KernelSet kernels_i32(ReduceOp op);
KernelSet kernels_i64(ReduceOp op);
KernelSet kernels_u8(ReduceOp op);

}  // namespace sixfold::comm
