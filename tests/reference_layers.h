// The layers of reference_gpt.h: double precision, plain loops, forward and backward. A matrix [rows, n] is a flat
// vector, row by row; the number of rows follows from its size.
#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace sixfold::test {

using Values = std::vector<double>;

/// y = x weight + bias.
inline Values linear(const Values& x, const Values& weight, const Values& bias) {
  const size_t out = bias.size(), in = weight.size() / out, rows = x.size() / in;
  Values y(rows * out);
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o) {
      double sum = bias[o];
      for (size_t i = 0; i < in; ++i) sum += x[r * in + i] * weight[i * out + o];
      y[r * out + o] = sum;
    }
  return y;
}

/// Adds to dweight and dbias; returns dx.
inline Values linear_backward(const Values& dy, const Values& x, const Values& weight, Values& dweight, Values& dbias) {
  const size_t out = dbias.size(), in = weight.size() / out, rows = x.size() / in;
  Values dx(x.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o) {
      const double d = dy[r * out + o];
      dbias[o] += d;
      for (size_t i = 0; i < in; ++i) {
        dweight[i * out + o] += x[r * in + i] * d;
        dx[r * in + i] += weight[i * out + o] * d;
      }
    }
  return dx;
}

/// Mean and standard deviation (with LayerNorm's epsilon) of a row.
struct Moments {
  double mean = 0, deviation = 0;
};
inline Moments moments(const double* x, size_t n) {
  Moments result;
  for (size_t i = 0; i < n; ++i) result.mean += x[i] / static_cast<double>(n);
  double variance = 0;
  for (size_t i = 0; i < n; ++i) variance += std::pow(x[i] - result.mean, 2) / static_cast<double>(n);
  result.deviation = std::sqrt(variance + 1e-5);
  return result;
}

inline Values layernorm(const Values& x, const Values& gamma, const Values& beta) {
  const size_t n = gamma.size();
  Values y(x.size());
  for (size_t r = 0; r < x.size() / n; ++r) {
    const Moments of_row = moments(&x[r * n], n);
    for (size_t i = 0; i < n; ++i) y[r * n + i] = (x[r * n + i] - of_row.mean) / of_row.deviation * gamma[i] + beta[i];
  }
  return y;
}

/// Adds to dgamma and dbeta; returns dx.
inline Values layernorm_backward(const Values& dy, const Values& x, const Values& gamma, Values& dgamma,
                                 Values& dbeta) {
  const size_t n = gamma.size();
  Values dx(x.size());
  for (size_t r = 0; r < x.size() / n; ++r) {
    const Moments of_row = moments(&x[r * n], n);
    double mean_d = 0, mean_dz = 0;  // of d = dy gamma, and of d times the normalised x
    for (size_t i = 0; i < n; ++i) {
      const double z = (x[r * n + i] - of_row.mean) / of_row.deviation;
      dgamma[i] += dy[r * n + i] * z;
      dbeta[i] += dy[r * n + i];
      mean_d += dy[r * n + i] * gamma[i] / static_cast<double>(n);
      mean_dz += dy[r * n + i] * gamma[i] * z / static_cast<double>(n);
    }
    for (size_t i = 0; i < n; ++i) {
      const double z = (x[r * n + i] - of_row.mean) / of_row.deviation;
      dx[r * n + i] = (dy[r * n + i] * gamma[i] - mean_d - z * mean_dz) / of_row.deviation;
    }
  }
  return dx;
}

inline constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
inline double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kGeluScale * (x + 0.044715 * x * x * x)));
}
inline double gelu_slope(double x) {
  const double t = std::tanh(kGeluScale * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluScale * (1 + 3 * 0.044715 * x * x);
}

}  // namespace sixfold::test
