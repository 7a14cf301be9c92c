// SIXFOLD_HD marks what runs on the CPU and, where nvcc compiles it, on a GPU as well.
#pragma once

#ifdef __CUDACC__
#define SIXFOLD_HD __host__ __device__
#else
#define SIXFOLD_HD
#endif

// Before a loop whose trip count is known: on a GPU, what it indexes stays in registers.
#ifdef __CUDACC__
#define SIXFOLD_UNROLL _Pragma("unroll")
#else
#define SIXFOLD_UNROLL
#endif
