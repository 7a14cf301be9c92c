#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/gemm.h"

namespace sixfold::kernels::cuda {

namespace {

/// A whole tensor of f32 or bf16, after checking its place and shape.
GemmOperand operand(const Tensor& tensor, int64_t rows, int64_t columns, bool transposed, const char* name) {
  GemmOperand result{nullptr, tensor.dtype(), columns, transposed};
  dispatch_float(tensor.dtype(), [&](auto element) {
    result.data = checked<decltype(element)>(tensor, {rows, columns}, name);
  });
  return result;
}

/// c = op(a) op(b), shapes checked.
Gemm product(bool transpose_a, bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& c) {
  Gemm g;
  g.m = checked_dim(c, 2, 0, "product c");
  g.n = c.dim(1);
  g.k = checked_dim(a, 2, transpose_a ? 0 : 1, "product a");
  g.a = transpose_a ? operand(a, g.k, g.m, true, "product a") : operand(a, g.m, g.k, false, "product a");
  g.b = transpose_b ? operand(b, g.n, g.k, true, "product b") : operand(b, g.k, g.n, false, "product b");
  g.c = operand(c, g.m, g.n, false, "product c");
  return g;
}

/// The elements of what an epilogue reads or writes beside c, of c's dtype.
void* beside(const Tensor& tensor, std::initializer_list<int64_t> shape, const Gemm& g, const char* name) {
  void* elements = nullptr;
  dispatch_float(g.c.dtype, [&](auto element) { elements = checked<decltype(element)>(tensor, shape, name); });
  return elements;
}

}  // namespace

void matmul(Context& context, bool transpose_a, bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& c,
            bool accumulate) {
  Gemm g = product(transpose_a, transpose_b, a, b, c);
  g.accumulate = accumulate;
  gemm(context, g);
}

void linear_forward(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
  Gemm g = product(false, false, x, weight, y);
  if (bias.defined()) {
    g.epilogue = Epilogue::Bias;
    g.bias = beside(bias, {g.n}, g, "linear bias");
  }
  gemm(context, g);
}

void linear_gelu_forward(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& hidden, const Tensor& activated) {
  Gemm g = product(false, false, x, weight, activated);
  g.epilogue = Epilogue::BiasGelu;
  g.bias = beside(bias, {g.n}, g, "linear bias");
  g.aux = beside(hidden, {g.m, g.n}, g, "linear hidden");
  gemm(context, g);
}

void linear_backward_input(Context& context, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  gemm(context, product(false, true, dy, weight, dx));
}

void linear_gelu_backward_input(Context& context, const Tensor& dy, const Tensor& weight, const Tensor& hidden,
                                const Tensor& dhidden) {
  Gemm g = product(false, true, dy, weight, dhidden);
  g.epilogue = Epilogue::GeluBackward;
  g.aux = beside(hidden, {g.m, g.n}, g, "linear hidden");
  gemm(context, g);
}

void linear_backward_weight(Context& context, const Tensor& x, const Tensor& dy, const Tensor& dweight,
                            const Tensor& dbias) {
  if (dweight.defined()) cuda::matmul(context, true, false, x, dy, dweight, true);
  if (dbias.defined()) add_column_sums(context, dy, dbias);
}

}  // namespace sixfold::kernels::cuda
