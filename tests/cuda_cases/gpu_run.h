// What the cases of the GPU's kernels share: tensors on the GPU of a context, filled from and read back to vectors.
//
// The cases run on whatever queue the context has: that of tests/emulated_gpu.h, or one of a GPU.
#pragma once

#include "tests/kernels_harness.h"

namespace sixfold::test {

/// How a case is run: of which type activations and parameters are, and how many elements past an aligned address
/// tensors start.
struct GpuVariant {
  DType dtype;
  int64_t shift;
};
inline constexpr GpuVariant kGpuVariants[] = {{DType::F32, 0}, {DType::BF16, 0}, {DType::F32, 1}, {DType::BF16, 3}};

inline std::ostream& operator<<(std::ostream& out, const GpuVariant& v) {
  return out << dtype_name(v.dtype) << ", shift " << v.shift;
}

/// Tensors for one execution of a kernel, and how close its results must be. Cases ask for what kernels that are
/// compiled for the CPU reach, times `slack`: a GPU has its own exp and tanh, and its library its own order of sums.
class GpuRun {
 public:
  GpuRun(kernels::Context& context_, GpuVariant variant, double slack = 1)
      : context(context_), variant_(variant), slack_(slack) {}

  /// `values` as activations or parameters are: rounded where they are bf16.
  Tensor typed(const Floats& values, Shape shape) { return floats(values, std::move(shape), variant_.dtype); }
  Tensor f32(const Floats& values, Shape shape) { return floats(values, std::move(shape), DType::F32); }
  Tensor ints(const std::vector<int32_t>& values, Shape shape) {
    const Tensor t = shifted(std::move(shape), DType::I32);
    kernels::from_host(context, Tensor::view(const_cast<int32_t*>(values.data()), t.shape(), DType::I32), t);
    return t;
  }
  /// Outputs start as NaN: the kernel must write every element.
  Tensor typed_output(const Shape& shape) { return typed(Floats(size(shape), kPoison), shape); }
  Tensor f32_output(const Shape& shape) { return f32(Floats(size(shape), kPoison), shape); }

  Floats read(const Tensor& t) const {
    const Tensor host = kernels::floats_on_host(context, t);
    return {host.data<float>(), host.data<float>() + host.numel()};
  }
  /// What is left of values that are stored as typed() stores them.
  Floats rounded(const Floats& values) const {
    Floats result = values;
    if (variant_.dtype == DType::BF16)
      for (float& v : result) v = static_cast<float>(BF16(v));
    return result;
  }
  /// The tolerance of typed outputs: rounding to bf16 is off by 2^-9 relative at most.
  double tolerance(double of_f32, double of_bf16 = 0x1p-8) const {
    return variant_.dtype == DType::BF16 ? of_bf16 : slack_ * of_f32;
  }
  /// That of outputs which are f32 whatever the variant.
  double f32_tolerance(double of_cpu) const { return slack_ * of_cpu; }

  kernels::Context& context;

 private:
  static size_t size(const Shape& shape) { return static_cast<size_t>(numel(shape)); }
  Tensor shifted(Shape shape, DType dtype) {
    const int64_t count = numel(shape);
    return Tensor::empty({count + variant_.shift}, dtype, context.memory, Category::Other)
        .slice(variant_.shift, std::move(shape));
  }
  Tensor floats(const Floats& values, Shape shape, DType dtype) {
    const Tensor t = shifted(std::move(shape), dtype);
    kernels::floats_from_host(context, Tensor::view(const_cast<float*>(values.data()), t.shape(), DType::F32), t);
    return t;
  }

  const GpuVariant variant_;
  const double slack_;
};

}  // namespace sixfold::test
