// PTX of tensor cores and of asynchronous copies, sm_80 and later. emulated_warp_block.h has the same functions for the CPU.
//
// A warp's lane has g = lane / 4 and t = lane % 4. Of mma.m16n8k16 it holds (PTX ISA, "Matrix fragments for
// mma.m16n8k16 with floating point type"), the lower column or row in the lower half of a register:
//
//   A [16 x 16]  a0: row g, columns 2t, 2t+1   a1: row g+8, the same    a2, a3: as a0, a1, columns 8 further on
//   B [16 x 8]   b0: rows 2t, 2t+1, column g   b1: rows 8 further on
//   C [16 x 8]   c0, c1: row g, columns 2t, 2t+1   c2, c3: row g+8
//
// ldmatrix.x4 reads four 8 x 8 matrices of 16-bit elements: row i of matrix j from the address that lane 8j + i names.
// Register j of a lane receives row g, columns 2t and 2t+1 of matrix j; with .trans rows 2t and 2t+1 of column g.
#pragma once

#include <cstdint>

namespace sixfold::kernels::cuda::ptx {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

template <bool transposed>
__device__ inline void ldmatrix_x4(uint32_t (&registers)[4], const void* row) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

/// c += a b, bf16 products added in f32.
__device__ inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two f32 rounded to bf16, `low` in the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// 16 bytes to shared memory, of which the first `valid_bytes` are read and the rest become 0. Not kept in L1.
__device__ inline void copy_async_16(void* shared, const void* global, int valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid_bytes)
               : "memory");
}

/// The same of 4 bytes.
__device__ inline void copy_async_4(void* shared, const void* global, int valid_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid_bytes)
               : "memory");
}

/// Returns when all copies that this thread has issued are in shared memory.
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace sixfold::kernels::cuda::ptx
