// Products of tiles that one warp takes the sum of in registers: of bf16 by tensor cores, of f32 by multiply-adds of
// each lane. Both hold sums in the layout of mma.m16n8k16 (device/mma.cuh), so what is done with them is written once.
#pragma once

#include "kernels/cuda/shared_tile.h"

namespace sixfold::kernels::cuda {

/// A warp's 16 kM x 8 kN sums in f32. Lane l has in part[m][n][l][i] the element in row 16 m + sum_row(l, i) and column
/// 8 n + sum_column(l, i).
template <int kM_, int kN_>
struct Sums {
  static constexpr int kM = kM_, kN = kN_;
  PerLane<float[4]> part[kM][kN];
};

SIXFOLD_HD constexpr int sum_row(int lane, int i) {
  return lane / 4 + 8 * (i / 2);
}
SIXFOLD_HD constexpr int sum_column(int lane, int i) {
  return 2 * (lane % 4) + i % 2;
}

/// f(lane, m, n, i) for all elements of sums.
template <typename Sums, typename F>
SIXFOLD_DEVICE void each_sum(const Warp& warp, const F& f) {
  warp.each_lane([&](int lane) {
    SIXFOLD_UNROLL
    for (int m = 0; m < Sums::kM; ++m) {
      SIXFOLD_UNROLL
      for (int n = 0; n < Sums::kN; ++n) {
        SIXFOLD_UNROLL
        for (int i = 0; i < 4; ++i) f(lane, m, n, i);
      }
    }
  });
}

/// f(lane, m, half) for all rows of sums that a lane has elements of: 16 m + sum_row(lane, 2 * half).
template <int kM, typename F>
SIXFOLD_DEVICE void each_sum_row(const Warp& warp, const F& f) {
  warp.each_lane([&](int lane) {
    SIXFOLD_UNROLL
    for (int m = 0; m < kM; ++m) {
      SIXFOLD_UNROLL
      for (int half = 0; half < 2; ++half) f(lane, m, half);
    }
  });
}

template <int kM, int kN>
SIXFOLD_DEVICE void clear(const Warp& warp, Sums<kM, kN>& sums) {
  each_sum<Sums<kM, kN>>(warp, [&](int lane, int m, int n, int i) { sums.part[m][n][lane][i] = 0; });
}

/// Where each lane's row of the matrices for ldmatrix starts; those of other steps are a constant away, which costs no
/// register.
using LaneRows = PerLane<const BF16*>;

/// ldmatrix_x4 of what lies `offset` elements after `rows`.
template <bool transposed>
SIXFOLD_DEVICE void load_matrices(const Warp& warp, const LaneRows& rows, int offset, PerLane<uint32_t[4]>& registers) {
  PerLane<const void*> at;
  warp.each_lane([&](int lane) { at[lane] = rows[lane] + offset; });
  warp.template ldmatrix_x4<transposed>(at, registers);
}

/// sums += A B^T, of rows a0 .. a0 + 16 kM - 1 of a and rows b0 .. b0 + 8 kN - 1 of b.
template <int kM, int kN, int kRowsA, int kRowsB, int kColumns>
SIXFOLD_DEVICE void add_rows_by_rows(const Warp& warp, Sums<kM, kN>& sums, const SharedTile<BF16, kRowsA, kColumns>& a,
                                     int a0, const SharedTile<BF16, kRowsB, kColumns>& b, int b0) {
  LaneRows rows_a, rows_b;
  warp.each_lane([&](int lane) {
    rows_a[lane] = a.chunk(a0 + lane % 16, lane / 16);
    rows_b[lane] = b.chunk(b0 + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  });
  SIXFOLD_UNROLL
  for (int k = 0; k < kColumns / 16; ++k) {
    PerLane<uint32_t[4]> left[kM], right;
    SIXFOLD_UNROLL
    for (int m = 0; m < kM; ++m) load_matrices<false>(warp, rows_a, a.offset(16 * m, 2 * k), left[m]);
    SIXFOLD_UNROLL
    for (int n = 0; n < kN; n += 2) {
      load_matrices<false>(warp, rows_b, b.offset(8 * n, 2 * k), right);
      SIXFOLD_UNROLL
      for (int m = 0; m < kM; ++m) {
        warp.mma_bf16(sums.part[m][n], left[m], right, 0);
        warp.mma_bf16(sums.part[m][n + 1], left[m], right, 2);
      }
    }
  }
}

template <int kM, int kN, int kRowsA, int kRowsB, int kColumns>
SIXFOLD_DEVICE void add_rows_by_rows(const Warp& warp, Sums<kM, kN>& sums, const SharedTile<float, kRowsA, kColumns>& a,
                                     int a0, const SharedTile<float, kRowsB, kColumns>& b, int b0) {
  warp.each_lane([&](int lane) {
    const float *rows_a = a.chunk(a0 + sum_row(lane, 0), 0), *rows_b = b.chunk(b0 + sum_column(lane, 0), 0);
    SIXFOLD_UNROLL_BY(2)
    for (int c = 0; c < kColumns / 4; ++c) {
      float left[kM][2][4];
      SIXFOLD_UNROLL
      for (int m = 0; m < kM; ++m) {
        warp.load(rows_a + a.offset(16 * m, c), left[m][0]);
        warp.load(rows_a + a.offset(16 * m + 8, c), left[m][1]);
      }
      SIXFOLD_UNROLL
      for (int n = 0; n < kN; ++n) {
        float right[2][4];
        warp.load(rows_b + b.offset(8 * n, c), right[0]);
        warp.load(rows_b + b.offset(8 * n + 1, c), right[1]);
        SIXFOLD_UNROLL
        for (int m = 0; m < kM; ++m) {
          SIXFOLD_UNROLL
          for (int i = 0; i < 4; ++i) {
            float& sum = sums.part[m][n][lane][i];
            SIXFOLD_UNROLL
            for (int k = 0; k < 4; ++k) sum += left[m][i / 2][k] * right[i % 2][k];
          }
        }
      }
    }
  });
}

/// sums += A B, of `a` in registers and rows b0 .. b0 + 8 kK - 1 of b. Sums of 16 x 16 elements are laid out as the
/// left operand of mma.m16n8k16 is, once rounded to bf16: they are it without moving between lanes.
template <int kM, int kK, int kN, int kRowsB>
SIXFOLD_DEVICE void add_sums_by_rows(const Warp& warp, Sums<kM, kN>& sums, const Sums<kM, kK>& a,
                                     const SharedTile<BF16, kRowsB, 8 * kN>& b, int b0) {
  LaneRows rows;
  warp.each_lane([&](int lane) { rows[lane] = b.chunk(b0 + lane % 16, lane / 16); });
  SIXFOLD_UNROLL
  for (int k = 0; k < kK; k += 2) {
    PerLane<uint32_t[4]> left[kM], right;
    warp.each_lane([&](int lane) {
      SIXFOLD_UNROLL
      for (int m = 0; m < kM; ++m) {
        SIXFOLD_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float(&pair)[4] = a.part[m][k + i / 2][lane];
          left[m][lane][i] = pack_bf16(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
      }
    });
    SIXFOLD_UNROLL
    for (int n = 0; n < kN; n += 2) {
      load_matrices<true>(warp, rows, b.offset(8 * k, n), right);
      SIXFOLD_UNROLL
      for (int m = 0; m < kM; ++m) {
        warp.mma_bf16(sums.part[m][n], left[m], right, 0);
        warp.mma_bf16(sums.part[m][n + 1], left[m], right, 2);
      }
    }
  }
}

template <int kM, int kK, int kN, int kRowsB>
SIXFOLD_DEVICE void add_sums_by_rows(const Warp& warp, Sums<kM, kN>& sums, const Sums<kM, kK>& a,
                                     const SharedTile<float, kRowsB, 8 * kN>& b, int b0) {
  SIXFOLD_UNROLL
  for (int k = 0; k < 8 * kK; ++k) {
    PerLane<float> left[kM][2];
    SIXFOLD_UNROLL
    for (int m = 0; m < kM; ++m) {
      warp.of_quad(a.part[m][k / 8], k % 2, k % 8 / 2, left[m][0]);
      warp.of_quad(a.part[m][k / 8], 2 + k % 2, k % 8 / 2, left[m][1]);
    }
    warp.each_lane([&](int lane) {
      const float* row = b.data + b.offset(b0, 0) + sum_column(lane, 0);
      SIXFOLD_UNROLL
      for (int n = 0; n < kN; ++n) {
        float right[2];
        warp.load(row + b.offset(k, 2 * n), right);
        SIXFOLD_UNROLL
        for (int m = 0; m < kM; ++m) {
          SIXFOLD_UNROLL
          for (int i = 0; i < 4; ++i) sums.part[m][n][lane][i] += left[m][i / 2][lane] * right[i % 2];
        }
      }
    });
  }
}

}  // namespace sixfold::kernels::cuda
