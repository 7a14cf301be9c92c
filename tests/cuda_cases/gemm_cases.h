// Matrix products, and linears with what is fused to them, against double precision.
#pragma once

#include "kernels/cuda/gemm.h"
#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

struct ProductSizes {
  int64_t m, n, k;
};
inline std::ostream& operator<<(std::ostream& out, const ProductSizes& s) {
  return out << s.m << "x" << s.n << "x" << s.k;
}
// One of each; odd ones; whole packs; tiles of a library with and without tails.
inline constexpr ProductSizes kProductSizes[] = {{1, 1, 1},    {3, 5, 4},     {33, 1, 7},
                                                 {1, 129, 33}, {64, 64, 128}, {129, 136, 65}};

/// start + op(a) op(b), element by element.
inline Doubles reference_product(const ProductSizes& s, bool transpose_a, bool transpose_b, const Floats& a,
                                 const Floats& b, Doubles start) {
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j)
      for (int64_t p = 0; p < s.k; ++p) {
        const double x = a[static_cast<size_t>(transpose_a ? p * s.m + i : i * s.k + p)];
        const double y = b[static_cast<size_t>(transpose_b ? j * s.k + p : p * s.n + j)];
        start[static_cast<size_t>(i * s.n + j)] += x * y;
      }
  return start;
}

/// Of a sum of k products of normal values, in f32.
inline double product_tolerance(int64_t k) {
  return 1e-6 + 1e-7 * static_cast<double>(k);
}

inline void check_products(kernels::Context& context, double slack = 1) {
  for (const GpuVariant variant : kGpuVariants)
    for (const ProductSizes& s : kProductSizes)
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) {
          SCOPED_TRACE(testing::Message() << s << " " << ta << tb << ", " << variant);
          GpuRun run(context, variant, slack);
          const Floats a = random_floats(s.m * s.k, 1), b = random_floats(s.k * s.n, 2),
                       c = random_floats(s.m * s.n, 3);
          const Tensor at = run.typed(a, ta ? Shape{s.k, s.m} : Shape{s.m, s.k});
          const Tensor bt = run.typed(b, tb ? Shape{s.n, s.k} : Shape{s.k, s.n});
          const Tensor stored = run.typed_output({s.m, s.n}), added = run.f32(c, {s.m, s.n});
          kernels::matmul(context, ta, tb, at, bt, stored, false);
          kernels::matmul(context, ta, tb, at, bt, added, true);
          const Floats ar = run.rounded(a), br = run.rounded(b);
          expect_close(run.read(stored), reference_product(s, ta, tb, ar, br, Doubles(c.size(), 0.0)),
                       run.tolerance(product_tolerance(s.k)), "c");
          expect_close(run.read(added), reference_product(s, ta, tb, ar, br, to_doubles(c)),
                       run.f32_tolerance(product_tolerance(s.k)), "c +=");
        }
}

/// What linears have beside a product. Weights are such that outputs are of the order of 1: each of two roundings to
/// bf16 is then off by some 2^-9 of it, times the derivative of GELU, up to 1.2.
inline void check_linears(kernels::Context& context, double slack = 1) {
  for (const GpuVariant variant : kGpuVariants)
    for (const ProductSizes& s : kProductSizes) {  // rows, out, in
      SCOPED_TRACE(testing::Message() << s << ", " << variant);
      GpuRun run(context, variant, slack);
      const double tolerance = run.tolerance(1e-5, 0x1p-6);
      const Floats x = run.rounded(random_floats(s.m * s.k, 1)), bias = run.rounded(random_floats(s.n, 3));
      const Floats w = run.rounded(random_floats(s.k * s.n, 2, 1 / std::sqrt(static_cast<double>(s.k))));
      const Floats before = run.rounded(random_floats(s.m * s.k, 5));  // a GELU's input, where x is its output
      const Floats dy = run.rounded(random_floats(s.m * s.n, 4, 1 / std::sqrt(static_cast<double>(s.n))));
      const Tensor xt = run.typed(x, {s.m, s.k}), wt = run.typed(w, {s.k, s.n}), bt = run.typed(bias, {s.n});

      const Tensor y = run.typed_output({s.m, s.n}), hidden = run.typed_output({s.m, s.n});
      const Tensor activated = run.typed_output({s.m, s.n});
      kernels::linear_forward(context, xt, wt, bt, y);
      kernels::linear_gelu_forward(context, xt, wt, bt, hidden, activated);
      Doubles start(static_cast<size_t>(s.m * s.n));
      for (size_t i = 0; i < start.size(); ++i) start[i] = bias[i % bias.size()];
      Doubles expected = reference_product(s, false, false, x, w, start);
      expect_close(run.read(y), expected, tolerance, "y");
      expect_close(run.read(hidden), expected, tolerance, "hidden");
      for (double& v : expected) v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      expect_close(run.read(activated), expected, tolerance, "activated");

      const ProductSizes back{s.m, s.k, s.n};
      const Tensor dyt = run.typed(dy, {s.m, s.n}), dx = run.typed_output({s.m, s.k});
      const Tensor dbefore = run.typed_output({s.m, s.k});
      kernels::linear_backward_input(context, dyt, wt, dx);
      kernels::linear_gelu_backward_input(context, dyt, wt, run.typed(before, {s.m, s.k}), dbefore);
      Doubles gradient = reference_product(back, false, true, dy, w, Doubles(before.size(), 0.0));
      expect_close(run.read(dx), gradient, tolerance, "dx");
      for (size_t i = 0; i < gradient.size(); ++i) {
        const double v = before[i], c = std::sqrt(2 / M_PI), t = std::tanh(c * (v + 0.044715 * v * v * v));
        gradient[i] *= 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * c * (1 + 3 * 0.044715 * v * v);
      }
      expect_close(run.read(dbefore), gradient, tolerance, "dhidden");

      const Floats dw0 = random_floats(s.k * s.n, 6), db0 = random_floats(s.n, 7);
      const Tensor dw = run.f32(dw0, {s.k, s.n}), db = run.f32(db0, {s.n}), dw_alone = run.f32(dw0, {s.k, s.n});
      kernels::linear_backward_weight(context, xt, dyt, dw, db);
      kernels::linear_backward_weight(context, xt, dyt, dw_alone, {});
      kernels::linear_backward_weight(context, xt, dyt, {}, db);  // once more
      const Doubles dw_expected = reference_product({s.k, s.n, s.m}, true, false, x, dy, to_doubles(dw0));
      expect_close(run.read(dw), dw_expected, run.f32_tolerance(product_tolerance(s.m)), "dweight");
      EXPECT_TRUE(same_bits(run.read(dw_alone), run.read(dw)));
      Doubles db_expected = to_doubles(db0);
      for (size_t i = 0; i < dy.size(); ++i) db_expected[i % db0.size()] += 2.0 * dy[i];
      expect_close(run.read(db), db_expected, run.f32_tolerance(2 * product_tolerance(s.m)), "dbias");
    }
}

/// A batch of products that lie between one another in memory, scaled, as attention has them.
inline void check_batched_products(kernels::Context& context, double slack = 1) {
  constexpr int64_t kBatch = 3, kRows = 5, kColumns = 7, kInner = 4;
  for (const GpuVariant variant : kGpuVariants)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        SCOPED_TRACE(testing::Message() << ta << tb << ", " << variant);
        GpuRun run(context, variant, slack);
        // Matrices of a batch side by side, in rows that have another two elements.
        const auto side_by_side = [&](int64_t rows, int64_t columns, uint32_t seed) {
          return std::pair(run.rounded(random_floats(rows * (kBatch * columns + 2), seed)), kBatch * columns + 2);
        };
        const int64_t a_rows = ta ? kInner : kRows, a_columns = ta ? kRows : kInner;
        const int64_t b_rows = tb ? kColumns : kInner, b_columns = tb ? kInner : kColumns;
        const auto [a, a_stride] = side_by_side(a_rows, a_columns, 1);
        const auto [b, b_stride] = side_by_side(b_rows, b_columns, 2);
        const auto [c, c_stride] = side_by_side(kRows, kColumns, 3);
        const Tensor at = run.typed(a, {static_cast<int64_t>(a.size())}),
                     bt = run.typed(b, {static_cast<int64_t>(b.size())});
        const Tensor ct = run.typed(c, {static_cast<int64_t>(c.size())});
        kernels::cuda::Gemm g;
        g.m = kRows;
        g.n = kColumns;
        g.k = kInner;
        g.a = {at.raw(), at.dtype(), a_stride, ta, a_columns};
        g.b = {bt.raw(), bt.dtype(), b_stride, tb, b_columns};
        g.c = {ct.raw(), ct.dtype(), c_stride, false, kColumns};
        g.batch = kBatch;
        g.scale = 0.25f;
        kernels::cuda::gemm(context, g);
        Doubles expected = to_doubles(c);  // what lies between stays
        for (int64_t x = 0; x < kBatch; ++x)
          for (int64_t i = 0; i < kRows; ++i)
            for (int64_t j = 0; j < kColumns; ++j) {
              double sum = 0;
              for (int64_t p = 0; p < kInner; ++p)
                sum += static_cast<double>(
                           a[static_cast<size_t>(x * a_columns + (ta ? p * a_stride + i : i * a_stride + p))]) *
                       b[static_cast<size_t>(x * b_columns + (tb ? j * b_stride + p : p * b_stride + j))];
              expected[static_cast<size_t>(x * kColumns + i * c_stride + j)] = 0.25 * sum;
            }
        expect_close(run.read(ct), expected, run.tolerance(1e-6), "c");
      }
}

}  // namespace sixfold::test
