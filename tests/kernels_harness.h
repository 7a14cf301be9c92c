// What the kernel tests share: a kernel is run with several thread counts and buffer addresses, which must all give the
// same bits, and its outputs are compared with a reference in double precision.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/core/rng.h"

namespace sixfold::test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

/// n normal values, a function of (n, seed).
inline Floats random_floats(int64_t n, uint32_t seed, double scale = 1.0) {
  Floats values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    const PhiloxBlock bits = philox({seed, 0x74657374u}, {static_cast<uint32_t>(i), 0, 0, 0});
    values[i] = static_cast<float>(scale * normal_pair(bits[0], bits[1])[0]);
  }
  return values;
}

inline Doubles to_doubles(const Floats& values) {
  return Doubles(values.begin(), values.end());
}

inline double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Tensors for one execution of a kernel.
class KernelRun {
 public:
  KernelRun(int num_threads, int shift) : context{memory_, num_threads}, shift_(shift) {}

  Tensor input(const Floats& values, Shape shape) { return place(values.data(), shape, DType::F32); }
  Tensor input(const std::vector<int32_t>& values, Shape shape) { return place(values.data(), shape, DType::I32); }
  /// Starts as NaN: the kernel must write every element.
  Tensor output(Shape shape) {
    const Floats poison(static_cast<size_t>(numel(shape)), kPoison);
    return output(poison, std::move(shape));
  }
  /// For kernels that add to what is there, or work in place.
  Tensor output(const Floats& start, Shape shape) {
    outputs_.push_back(place(start.data(), std::move(shape), DType::F32));
    return outputs_.back();
  }

  std::vector<Floats> outputs() const {
    std::vector<Floats> values;
    for (const Tensor& t : outputs_) values.emplace_back(t.data<float>(), t.data<float>() + t.numel());
    return values;
  }

 private:
  Memory memory_;

 public:
  kernels::Context context;

 private:
  Tensor place(const void* values, const Shape& shape, DType dtype) {
    const Tensor padded = Tensor::empty({numel(shape) + shift_}, dtype, memory_, Category::Other);
    Tensor tensor = padded.slice(shift_, shape);
    if (tensor.bytes() > 0) std::memcpy(tensor.raw(), values, tensor.bytes());
    return tensor;
  }

  int shift_;  // elements past a 64-byte aligned address
  std::vector<Tensor> outputs_;
};

/// As ==, but NaN equals itself and 0 differs from -0.
inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// The outputs of `kernel`, in the order in which it asked for them, after checking that 1, 2 and 3 threads and buffers
/// at other addresses give the same bits.
inline std::vector<Floats> run_kernel(const std::function<void(KernelRun&)>& kernel) {
  struct Variant {
    int num_threads, shift;
  };
  std::vector<Floats> first;
  for (const Variant v : {Variant{1, 0}, Variant{2, 0}, Variant{3, 1}, Variant{1, 1}}) {
    KernelRun run(v.num_threads, v.shift);
    kernel(run);
    const std::vector<Floats> outputs = run.outputs();
    if (first.empty()) {
      first = outputs;
      continue;
    }
    for (size_t k = 0; k < outputs.size(); ++k)
      EXPECT_TRUE(same_bits(outputs[k], first[k]))
          << "output " << k << " differs with " << v.num_threads << " threads, shift " << v.shift;
  }
  return first;
}

/// Every element within tolerance * max(1, |expected|).
inline void expect_close(const Floats& actual, const Doubles& expected, double tolerance, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    ASSERT_TRUE(error <= tolerance * std::max(1.0, std::abs(expected[i])))  // false for NaN
        << what << "[" << i << "] is " << actual[i] << ", expected " << expected[i];
  }
}

/// Compares `gradient` with central differences of f, a double-precision function, at x: element by element at up to 50
/// places spread over x, and along one random direction over all of them.
inline void expect_gradient(const std::function<double(const Doubles&)>& f, const Floats& x, const Floats& gradient,
                            double tolerance, const char* what) {
  constexpr double h = 1e-5;
  ASSERT_EQ(x.size(), gradient.size()) << what;
  const auto slope = [&](const Doubles& direction) {
    Doubles plus = to_doubles(x), minus = plus;
    for (size_t i = 0; i < x.size(); ++i) {
      plus[i] += h * direction[i];
      minus[i] -= h * direction[i];
    }
    return (f(plus) - f(minus)) / (2 * h);
  };
  const size_t stride = x.size() / 50 + 1;
  for (size_t i = 0; i < x.size(); i += stride) {
    Doubles direction(x.size(), 0.0);
    direction[i] = 1;
    const double expected = slope(direction);
    ASSERT_NEAR(gradient[i], expected, tolerance * std::max(1.0, std::abs(expected))) << what << "[" << i << "]";
  }
  const Doubles direction = to_doubles(random_floats(static_cast<int64_t>(x.size()), 99));
  const double expected = slope(direction), size = std::sqrt(static_cast<double>(x.size()));
  ASSERT_NEAR(dot(to_doubles(gradient), direction), expected, tolerance * size * std::max(1.0, std::abs(expected)))
      << what << ", along a random direction";
}

}  // namespace sixfold::test
