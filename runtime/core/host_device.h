// SIXFOLD_HD marks what runs on the CPU and, where nvcc compiles it, on a GPU as well; SIXFOLD_DEVICE what nvcc
// compiles for a GPU only, and other compilers for the CPU: code of kernels that tests run without a GPU.
#pragma once

#ifdef __CUDACC__
#define SIXFOLD_HD __host__ __device__
#define SIXFOLD_DEVICE __device__
#else
#define SIXFOLD_HD
#define SIXFOLD_DEVICE
#endif

// Before a loop whose trip count is known: on a GPU, what it indexes stays in registers. _BY: so many turns at a time.
#ifdef __CUDACC__
#define SIXFOLD_UNROLL _Pragma("unroll")
#define SIXFOLD_PRAGMA(text) _Pragma(#text)
#define SIXFOLD_UNROLL_BY(n) SIXFOLD_PRAGMA(unroll n)
#else
#define SIXFOLD_UNROLL
#define SIXFOLD_UNROLL_BY(n)
#endif
