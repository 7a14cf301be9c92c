#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace sixfold::kernels {

namespace {

constexpr float kSqrt2OverPi = 0.7978845608f, kCubic = 0.044715f;

float gelu(float x) {
  const float t = tanh_f32(kSqrt2OverPi * (x + kCubic * x * x * x));
  return 0.5f * x * (1.0f + t);
}

// d/dx of 0.5 x (1 + t) with t = tanh(u): 0.5 (1 + t) + 0.5 x (1 - t^2) u'.
float gelu_derivative(float x) {
  const float t = tanh_f32(kSqrt2OverPi * (x + kCubic * x * x * x));
  const float du = kSqrt2OverPi * (1.0f + 3.0f * kCubic * x * x);
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * du;
}

}  // namespace

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

void accumulate(Context& context, const Tensor& src, const Tensor& dst) {
  const float* in = checked_elements(src, dst.numel(), "accumulate src");
  float* out = checked_elements(dst, dst.numel(), "accumulate dst");
  parallel_ranges(context.num_threads, dst.numel(), kElementsPerPiece, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] += in[i];
  });
}

}  // namespace sixfold::kernels
