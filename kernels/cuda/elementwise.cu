#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/gelu.h"

namespace sixfold::kernels::cuda {

namespace {

template <typename T>
struct GeluForward {
  const T* x;
  T* y;
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    float values[n];
    load(x + i, values);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) values[k] = gelu(values[k]);
    store(y + i, values);
  }
};

template <typename T>
struct GeluBackward {
  const T* dy;
  const T* x;
  T* dx;
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    float gradient[n], values[n];
    load(dy + i, gradient);
    load(x + i, values);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) gradient[k] *= gelu_derivative(values[k]);
    store(dx + i, gradient);
  }
};

template <typename T>
struct Accumulate {
  const T* src;
  float* dst;
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    float added[n], sum[n];
    load(src + i, added);
    load(dst + i, sum);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) sum[k] += added[k];
    store(dst + i, sum);
  }
};

template <typename From, typename To>
struct Convert {
  const From* src;
  To* dst;
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    float values[n];
    load(src + i, values);
    store(dst + i, values);
  }
};

/// dst [B, A, n] = src [A, B, n]: a row is one run of n elements of src.
template <typename T>
struct SwapDims {
  const T* src;
  T* dst;
  int64_t num_outer, num_inner, length;  // A, B, n
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    const int64_t outer = row / num_inner, inner = row % num_inner;
    const T* from = src + row * length;
    T* to = dst + (inner * num_outer + outer) * length;
    for_channels<1>(lanes, length, [&](int64_t i) { to[i] = from[i]; });
  }
};

}  // namespace

void gelu_forward(Context& context, const Tensor& x, const Tensor& y) {
  dispatch_float(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const GeluForward<T> f{checked_elements<T>(x, x.numel(), "gelu x"), checked_elements<T>(y, x.numel(), "gelu y")};
    for_each_element(context, x.numel(), {f.x, f.y}, f);
  });
}

void gelu_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& dx) {
  dispatch_float(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const GeluBackward<T> f{checked_elements<T>(dy, x.numel(), "gelu dy"), checked_elements<T>(x, x.numel(), "gelu x"),
                            checked_elements<T>(dx, x.numel(), "gelu dx")};
    for_each_element(context, x.numel(), {f.dy, f.x, f.dx}, f);
  });
}

void accumulate(Context& context, const Tensor& src, const Tensor& dst) {
  dispatch_float(src.dtype(), [&](auto element) {
    using T = decltype(element);
    const Accumulate<T> f{checked_elements<T>(src, dst.numel(), "accumulate src"),
                          checked_elements<float>(dst, dst.numel(), "accumulate dst")};
    for_each_element(context, dst.numel(), {f.src, f.dst}, f);
  });
}

void convert(Context& context, const Tensor& src, const Tensor& dst) {
  const auto launch = [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    const Convert<From, To> f{checked_elements<From>(src, dst.numel(), "convert src"),
                              checked_elements<To>(dst, dst.numel(), "convert dst")};
    for_each_element(context, dst.numel(), {f.src, f.dst}, f);
  };
  if (src.dtype() == DType::BF16) {
    launch(BF16{}, float{});
  } else {
    launch(float{}, BF16{});
  }
}

void swap_dims(Context& context, const Tensor& src, const Tensor& dst) {
  const int64_t a = checked_dim(src, 3, 0, "swap_dims src"), b = src.dim(1), n = src.dim(2);
  dispatch_float(src.dtype(), [&](auto element) {
    using T = decltype(element);
    const SwapDims<T> f{checked<T>(src, {a, b, n}, "swap_dims src"), checked<T>(dst, {b, a, n}, "swap_dims dst"), a, b,
                        n};
    for_each_row<RowBy::Block>(context, n == 0 ? 0 : a * b, f);
  });
}

}  // namespace sixfold::kernels::cuda
