// What stands on matrix products on a GPU, with plain loops in the library's place; and how products are put to it.
#include "kernels/cuda/lt_problem.h"
#include "tests/cuda_cases/gemm_cases.h"
#include "tests/emulated_gpu.h"

namespace sixfold::test {
namespace {

using kernels::cuda::alignment_of;
using kernels::cuda::Gemm;
using kernels::cuda::lt_problem;
using kernels::cuda::LtMatrix;
using kernels::cuda::LtProblem;

TEST(CudaGemm, ProductsEqualReference) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_products(context);
}

TEST(CudaGemm, BatchesEqualReference) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_batched_products(context);
}

TEST(CudaGemm, LinearsEqualReference) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  check_linears(context);
}

TEST(CudaGemm, EmptyProductsAndOtherShapes) {
  EmulatedGpu gpu;
  kernels::Context context = gpu.context();
  GpuRun run(context, {DType::F32, 0});
  const Tensor c = run.f32({1, 2}, {1, 2});
  kernels::matmul(context, true, false, run.f32({}, {0, 1}), run.f32({}, {0, 2}), c, true);  // adds nothing
  EXPECT_EQ(run.read(c), (Floats{1, 2}));
  kernels::matmul(context, false, false, run.f32({}, {0, 4}), run.f32(Floats(12), {4, 3}), run.f32({}, {0, 3}), false);
  EXPECT_THROW(kernels::matmul(context, false, false, c, c, c, false), CheckError);
  EXPECT_THROW(kernels::linear_forward(context, run.f32({1}, {1, 1}), run.f32({1}, {1, 1}), run.f32({1, 1}, {2}),
                                       run.f32({1}, {1, 1})),
               CheckError);
}

/// Carries a problem out as cuBLAS documents it: everything by columns.
void column_major_product(const LtProblem& p, const float* a, const float* b, float* c) {
  const auto element = [](const LtMatrix& x, const float* data, bool transpose, int64_t batch, int64_t i, int64_t j) {
    if (transpose) std::swap(i, j);
    EXPECT_LT(i, x.rows);
    EXPECT_LT(j, x.columns);
    return data[batch * x.batch_stride + i + j * x.ld];
  };
  for (int64_t x = 0; x < p.batch; ++x)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += element(p.a, a, p.transpose_a, x, i, k) * element(p.b, b, p.transpose_b, x, k, j);
        c[x * p.c.batch_stride + i + j * p.c.ld] = sum;
      }
}

TEST(LtProblem, CarriedOutByColumnsIsTheProductByRows) {
  constexpr int64_t kM = 2, kN = 3, kK = 4, kBatch = 2;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      SCOPED_TRACE(testing::Message() << ta << tb);
      // Strides longer than rows, batches further apart than matrices.
      Gemm g;
      g.m = kM;
      g.n = kN;
      g.k = kK;
      g.batch = kBatch;
      Floats a = random_floats(100, 1, 10), b = random_floats(100, 2, 10);
      for (Floats* x : {&a, &b})
        for (float& v : *x) v = std::round(v);  // sums are exact in any order
      Floats by_columns(100, -1.0f), by_rows = by_columns;
      g.a = {a.data(), DType::F32, 6, ta, 31};
      g.b = {b.data(), DType::F32, 5, tb, 29};
      g.c = {by_rows.data(), DType::F32, 7, false, 23};
      EmulatedGpu gpu;
      kernels::Context context = gpu.context();
      kernels::cuda::gemm(context, g);
      column_major_product(lt_problem(g), b.data(), a.data(), by_columns.data());  // the operands change places
      EXPECT_EQ(by_columns, by_rows);
    }
}

TEST(LtProblem, Table) {
  struct Row {
    bool transpose_a, transpose_b;
    // Of the library: op of its a and b; rows, columns and leading dimension of a (our b), and of b (our a).
    bool op_a, op_b;
    int64_t a_rows, a_columns, a_ld, b_rows, b_columns, b_ld;
  };
  // c [2, 3] = a [2, 4] b [4, 3], each stored without gaps.
  for (const Row& row :
       {Row{false, false, false, false, 3, 4, 3, 4, 2, 4}, Row{true, false, false, true, 3, 4, 3, 2, 4, 2},
        Row{false, true, true, false, 4, 3, 4, 4, 2, 4}, Row{true, true, true, true, 4, 3, 4, 2, 4, 2}}) {
    SCOPED_TRACE(testing::Message() << row.transpose_a << row.transpose_b);
    Gemm g;
    g.m = 2;
    g.n = 3;
    g.k = 4;
    g.a = {nullptr, DType::BF16, row.transpose_a ? 2 : 4, row.transpose_a, 8};
    g.b = {nullptr, DType::BF16, row.transpose_b ? 4 : 3, row.transpose_b, 12};
    g.c = {nullptr, DType::F32, 3, false, 6};
    g.batch = 5;
    const LtProblem p = lt_problem(g);
    EXPECT_EQ((std::vector{p.m, p.n, p.k, p.batch}), (std::vector<int64_t>{3, 2, 4, 5}));
    EXPECT_EQ((std::vector{p.transpose_a, p.transpose_b}), (std::vector{row.op_a, row.op_b}));
    EXPECT_EQ(p.a, (LtMatrix{DType::BF16, row.a_rows, row.a_columns, row.a_ld, 12, 256}));
    EXPECT_EQ(p.b, (LtMatrix{DType::BF16, row.b_rows, row.b_columns, row.b_ld, 8, 256}));
    EXPECT_EQ(p.c, (LtMatrix{DType::F32, 3, 2, 3, 6, 256}));
  }
}

TEST(LtProblem, AlignmentIsTheLargestPowerOfTwo) {
  const auto of = [](uintptr_t address) { return alignment_of(reinterpret_cast<const void*>(address)); };
  EXPECT_EQ(of(0), 256);
  EXPECT_EQ(of(1024), 256);
  EXPECT_EQ(of(1024 + 128), 128);
  EXPECT_EQ(of(1024 + 16), 16);
  EXPECT_EQ(of(1024 + 6), 2);
}

TEST(LtProblem, IsNamedInMessages) {
  Gemm g;
  g.m = 64;
  g.n = 2304;
  g.k = 768;
  g.a.dtype = g.b.dtype = DType::BF16;
  g.b.transposed = true;
  g.accumulate = true;
  EXPECT_EQ(describe(lt_problem(g)), "matrix product [64, 768] x [768, 2304]^T, bf16 to f32, accumulated");
}

}  // namespace
}  // namespace sixfold::test
