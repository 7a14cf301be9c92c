#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/gelu.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cpu {

void gelu_forward(Context& context, const Tensor& x, const Tensor& y) {
  const float* in = checked_elements(x, x.numel(), "gelu x");
  float* out = checked_elements(y, x.numel(), "gelu y");
  parallel_ranges(context.num_threads, x.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = gelu(in[i]);
  });
}

void gelu_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& dx) {
  const float* gradient = checked_elements(dy, x.numel(), "gelu dy");
  const float* in = checked_elements(x, x.numel(), "gelu x");
  float* out = checked_elements(dx, x.numel(), "gelu dx");
  parallel_ranges(context.num_threads, x.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
#pragma omp simd  // also where dx is dy
    for (int64_t i = begin; i < end; ++i) out[i] = gradient[i] * gelu_derivative(in[i]);
  });
}

namespace {

/// Elements of either of the two types that gradients travel in.
template <typename T>
const T* checked_source(const Tensor& src, const Tensor& dst, const char* what) {
  SIXFOLD_CHECK_EQ(src.numel(), dst.numel(), what);
  return src.data<T>();
}

}  // namespace

void accumulate(Context& context, const Tensor& src, const Tensor& dst) {
  float* out = checked_elements(dst, dst.numel(), "accumulate dst");
  const auto add = [&](const auto* in) {
    parallel_ranges(context.num_threads, dst.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] += static_cast<float>(in[i]);
    });
  };
  if (src.dtype() == DType::BF16) {
    add(checked_source<BF16>(src, dst, "accumulate src"));
  } else {
    add(checked_source<float>(src, dst, "accumulate src"));
  }
}

void convert(Context& context, const Tensor& src, const Tensor& dst) {
  const auto copy = [&](const auto* in, auto* out) {
    parallel_ranges(context.num_threads, dst.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = static_cast<std::remove_reference_t<decltype(*out)>>(in[i]);
    });
  };
  if (src.dtype() == DType::BF16) {
    copy(checked_source<BF16>(src, dst, "convert src"), dst.data<float>());
  } else {
    copy(checked_source<float>(src, dst, "convert src"), dst.data<BF16>());
  }
}

}  // namespace sixfold::kernels::cpu
