// matmul and the linear layers against plain loops in double.
#include <thread>

#include "kernels/gemm_rate.h"
#include "tests/kernels_harness.h"

namespace sixfold {
namespace {

using namespace test;
using kernels::matmul;

struct Sizes {
  int64_t m, n, k;
};
// Odd sizes, vectors, and several tiles in each direction.
constexpr Sizes kSizes[] = {{1, 1, 1},    {1, 33, 5},    {3, 1, 7},    {7, 5, 1},    {3, 5, 4},
                            {2, 9, 8},    {7, 33, 65},   {64, 64, 64}, {65, 63, 33}, {1, 97, 384},
                            {300, 17, 9}, {270, 520, 5}, {20, 30, 800}};

Doubles reference_matmul(const Sizes& s, bool transpose_a, bool transpose_b, const Floats& a, const Floats& b,
                         const Floats& start) {
  Doubles c = to_doubles(start);
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j)
      for (int64_t p = 0; p < s.k; ++p) {
        const double x = a[static_cast<size_t>(transpose_a ? p * s.m + i : i * s.k + p)];
        const double y = b[static_cast<size_t>(transpose_b ? j * s.k + p : p * s.n + j)];
        c[static_cast<size_t>(i * s.n + j)] += x * y;
      }
  return c;
}

/// A running sum of k products wanders as sqrt(k) and is rounded k times: errors of the order of k * 2^-24, whatever
/// the order in which a vector unit adds.
double gemm_tolerance(int64_t k) {
  return 1e-7 * static_cast<double>(k) + 1e-6;
}

TEST(KernelsMatmul, EqualsReferenceForAllTranspositions) {
  for (const Sizes& s : kSizes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(testing::Message() << s.m << "x" << s.n << "x" << s.k << " " << ta << tb << accumulate);
          const Floats a = random_floats(s.m * s.k, 1), b = random_floats(s.k * s.n, 2),
                       c = random_floats(s.m * s.n, 3);
          const Shape a_shape = ta ? Shape{s.k, s.m} : Shape{s.m, s.k},
                      b_shape = tb ? Shape{s.n, s.k} : Shape{s.k, s.n};
          const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
            const Tensor result = accumulate ? run.output(c, {s.m, s.n}) : run.output({s.m, s.n});
            matmul(run.context, ta, tb, run.input(a, a_shape), run.input(b, b_shape), result, accumulate);
          });
          const Floats start = accumulate ? c : Floats(c.size(), 0.0f);
          expect_close(out[0], reference_matmul(s, ta, tb, a, b, start), gemm_tolerance(s.k), "c");
        }
}

TEST(KernelsMatmul, EmptyDims) {
  KernelRun run(2, 0);
  const Tensor c = run.output({2, 3});  // K = 0: a sum of nothing
  matmul(run.context, false, false, run.input(Floats{}, {2, 0}), run.input(Floats{}, {0, 3}), c, false);
  EXPECT_EQ(run.outputs()[0], Floats(6, 0.0f));
  matmul(run.context, false, false, run.input(Floats{}, {0, 4}), run.input(random_floats(12, 1), {4, 3}),
         run.output({0, 3}), false);
}

TEST(KernelsMatmul, RefusesOtherShapes) {
  KernelRun run(1, 0);
  const Tensor a = run.output({2, 3}), b = run.output({4, 5}), c = run.output({2, 5});
  EXPECT_THROW(matmul(run.context, false, false, a, b, c, false), CheckError);
  EXPECT_THROW(matmul(run.context, false, false, run.output({8}), b, c, false), CheckError);
  EXPECT_THROW(matmul(run.context, false, false, run.input(std::vector<int32_t>(8), {2, 4}), b, c, false), CheckError);
}

TEST(KernelsLinear, ForwardAddsBias) {
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(testing::Message() << s.m << "x" << s.n << "x" << s.k);
    const Floats x = random_floats(s.m * s.k, 1), w = random_floats(s.k * s.n, 2), bias = random_floats(s.n, 3);
    const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
      const Tensor xt = run.input(x, {s.m, s.k}), wt = run.input(w, {s.k, s.n});
      kernels::linear_forward(run.context, xt, wt, run.input(bias, {s.n}), run.output({s.m, s.n}));
      kernels::linear_forward(run.context, xt, wt, Tensor(), run.output({s.m, s.n}));
    });
    Floats start(static_cast<size_t>(s.m * s.n), 0.0f);
    expect_close(out[1], reference_matmul(s, false, false, x, w, start), gemm_tolerance(s.k), "y without bias");
    for (size_t i = 0; i < start.size(); ++i) start[i] = bias[i % bias.size()];
    expect_close(out[0], reference_matmul(s, false, false, x, w, start), gemm_tolerance(s.k), "y");
  }
}

TEST(KernelsLinear, BackwardEqualsNumericGradient) {
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{3, 5, 4}, Sizes{7, 33, 5}, Sizes{300, 17, 9}}) {  // rows, out, in
    SCOPED_TRACE(testing::Message() << s.m << "x" << s.n << "x" << s.k);
    const Floats x = random_floats(s.m * s.k, 1), w = random_floats(s.k * s.n, 2), bias = random_floats(s.n, 3);
    const Floats dy = random_floats(s.m * s.n, 4), dw0 = random_floats(s.k * s.n, 5), db0 = random_floats(s.n, 6);
    const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
      const Tensor dyt = run.input(dy, {s.m, s.n}), xt = run.input(x, {s.m, s.k});
      kernels::linear_backward_input(run.context, dyt, run.input(w, {s.k, s.n}), run.output({s.m, s.k}));
      const Tensor dweight = run.output(dw0, {s.k, s.n}), dbias = run.output(db0, {s.n});
      kernels::linear_backward_weight(run.context, xt, dyt, dweight, dbias);
      kernels::linear_backward_weight(run.context, xt, dyt, run.output(dw0, {s.k, s.n}), Tensor());
    });
    const auto loss = [&](const Doubles& x_, const Doubles& w_, const Doubles& bias_) {
      double sum = 0;
      for (int64_t r = 0; r < s.m; ++r)
        for (int64_t j = 0; j < s.n; ++j) {
          double y = bias_[static_cast<size_t>(j)];
          for (int64_t i = 0; i < s.k; ++i)
            y += x_[static_cast<size_t>(r * s.k + i)] * w_[static_cast<size_t>(i * s.n + j)];
          sum += y * dy[static_cast<size_t>(r * s.n + j)];
        }
      return sum;
    };
    const Doubles xd = to_doubles(x), wd = to_doubles(w), bd = to_doubles(bias);
    const auto minus = [](Floats a, const Floats& b) {
      for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
      return a;
    };
    expect_gradient([&](const Doubles& v) { return loss(v, wd, bd); }, x, out[0], 1e-5, "dx");
    expect_gradient([&](const Doubles& v) { return loss(xd, v, bd); }, w, minus(out[1], dw0), 3e-5, "dweight");
    expect_gradient([&](const Doubles& v) { return loss(xd, wd, v); }, bias, minus(out[2], db0), 3e-5, "dbias");
    EXPECT_EQ(out[3], out[1]) << "an absent bias changed the weight gradient";
  }
}

TEST(KernelsLinear, WithGeluIsTheTwoAfterOneAnother) {
  for (const Sizes& s : kSizes) {  // rows, out, in
    SCOPED_TRACE(testing::Message() << s.m << "x" << s.n << "x" << s.k);
    const Floats x = random_floats(s.m * s.k, 1), w = random_floats(s.k * s.n, 2), bias = random_floats(s.n, 3);
    const Floats dy = random_floats(s.m * s.n, 4);
    const std::vector<Floats> out = run_kernel([&](KernelRun& run) {
      const Tensor xt = run.input(x, {s.m, s.k}), wt = run.input(w, {s.k, s.n}), bt = run.input(bias, {s.n});
      const Tensor hidden = run.output({s.m, s.n}), activated = run.output({s.m, s.n});
      kernels::linear_forward(run.context, xt, wt, bt, hidden);
      kernels::gelu_forward(run.context, hidden, activated);
      const Tensor fused_hidden = run.output({s.m, s.n}), fused = run.output({s.m, s.n});
      kernels::linear_gelu_forward(run.context, xt, wt, bt, fused_hidden, fused);
      const Tensor dyt = run.input(dy, {s.m, s.n}), dx = run.output({s.m, s.k});
      kernels::linear_backward_input(run.context, dyt, wt, dx);
      kernels::gelu_backward(run.context, dx, xt, dx);
      kernels::linear_gelu_backward_input(run.context, dyt, wt, xt, run.output({s.m, s.k}));
    });
    EXPECT_TRUE(same_bits(out[2], out[0]));
    EXPECT_TRUE(same_bits(out[3], out[1]));
    EXPECT_TRUE(same_bits(out[5], out[4]));
  }
}

TEST(KernelsGemmRate, IsAPlausibleRate) {
  Memory memory;
  kernels::Context context{memory, 1};
  const double rate = kernels::measure_gemm_rate(context);
  EXPECT_GT(rate, 0.01);
  EXPECT_LT(rate, 1e6);
  EXPECT_EQ(memory.live_bytes(Category::Other), 0u);
}

TEST(KernelsBetween, IsCalledBetweenPiecesAndMayThrow) {
  Memory memory;
  for (int num_threads : {1, 2}) {
    kernels::Context context{memory, num_threads};
    const auto caller = std::this_thread::get_id();
    int calls = 0;
    context.between = [&] {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++calls;
    };
    const Tensor a = Tensor::zeros({600, 8}, DType::F32, memory, Category::Other);
    const Tensor b = Tensor::zeros({8, 600}, DType::F32, memory, Category::Other);
    const Tensor c = Tensor::zeros({600, 600}, DType::F32, memory, Category::Other);
    kernels::matmul(context, false, false, a, b, c, false);
    EXPECT_EQ(calls, num_threads == 1 ? 6 : 1);  // tiles of at most 256 x 512

    const Tensor qkv = Tensor::zeros({8, 3 * 16}, DType::F32, memory, Category::Other);
    const Tensor out = Tensor::zeros({8, 16}, DType::F32, memory, Category::Other);
    const Tensor lse = Tensor::zeros({2, 4, 4}, DType::F32, memory, Category::Other);
    calls = 0;
    kernels::attention_forward(context, qkv, 4, 4, out, lse);
    kernels::attention_backward(context, out, qkv, out, lse, 4, 4, qkv);
    EXPECT_EQ(calls, num_threads == 1 ? 16 : 2);  // 2 rows of 4 heads, twice

    context.between = [] { throw CommError("a peer is gone"); };
    EXPECT_THROW(kernels::matmul(context, false, false, a, b, c, false), CommError);
  }
}

}  // namespace
}  // namespace sixfold
