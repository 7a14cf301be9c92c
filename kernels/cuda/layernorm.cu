// A row is read from memory once; passes after the first find it in the cache that is next to the lanes.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/dropout.h"
#include "kernels/layernorm.h"

namespace sixfold::kernels::cuda {

namespace {

/// Channels from which on a block takes a row: more would not find room in the cache for a row a warp.
inline constexpr int64_t kWideRow = 2048;

template <typename F>
void for_each_row_of(Context& context, int64_t rows, int64_t channels, const F& f) {
  if (channels > kWideRow) {
    for_each_row<RowBy::Block>(context, rows, f);
  } else {
    for_each_row<RowBy::Warp>(context, rows, f);
  }
}

/// What becomes of a row, wherever it is from.
template <typename T, int pack>
struct Normalize {
  const T* gamma;
  const T* beta;
  float eps;
  int64_t channels;
  T* y;
  float* mean;
  float* rstd;

  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t r, const T* row) const {
    const float count = static_cast<float>(channels);
    float sum = 0;
    for_channels<pack>(lanes, channels, [&](int64_t c) {
      float values[pack];
      load(row + c, values);
      SIXFOLD_UNROLL
      for (int i = 0; i < pack; ++i) sum += values[i];
    });
    const float m = lanes.sum(sum) / count;
    // Around the mean, not E[x^2] - mean^2, which cancels.
    float squares = 0;
    for_channels<pack>(lanes, channels, [&](int64_t c) {
      float values[pack];
      load(row + c, values);
      SIXFOLD_UNROLL
      for (int i = 0; i < pack; ++i) squares += (values[i] - m) * (values[i] - m);
    });
    const float s = reciprocal_deviation(lanes.sum(squares) / count, eps);
    for_channels<pack>(lanes, channels, [&](int64_t c) {
      float values[pack], weight[pack], bias[pack];
      load(row + c, values);
      load(gamma + c, weight);
      load(beta + c, bias);
      SIXFOLD_UNROLL
      for (int i = 0; i < pack; ++i) values[i] = normalized(values[i], m, s) * weight[i] + bias[i];
      store(y + r * channels + c, values);
    });
    if (lanes.index() != 0) return;
    mean[r] = m;
    rstd[r] = s;
  }
};

template <typename T, int pack>
Normalize<T, pack> normalize_rows(int64_t rows, int64_t channels, const Tensor& gamma, const Tensor& beta, float eps,
                                  const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  return {checked<T>(gamma, {channels}, "layernorm gamma"),
          checked<T>(beta, {channels}, "layernorm beta"),
          eps,
          channels,
          checked<T>(y, {rows, channels}, "layernorm y"),
          checked<float>(mean, {rows}, "layernorm mean"),
          checked<float>(rstd, {rows}, "layernorm rstd")};
}

template <typename T, int pack>
struct Forward {
  const T* x;
  Normalize<T, pack> normalize;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t r) const {
    normalize(lanes, r, x + r * normalize.channels);
  }
};

template <typename T, int pack>
struct ResidualForward {
  Dropout<T, pack == 1 ? 1 : 4> add;
  Normalize<T, pack> normalize;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t r) const {
    add(lanes, r);
    lanes.sync();
    normalize(lanes, r, add.y + r * normalize.channels);
  }
};

template <typename T, int pack>
struct BackwardInput {
  const T* dy;
  const T* x;
  const T* gamma;
  const float* mean;
  const float* rstd;
  int64_t channels;
  T* dx;

  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t r) const {
    const float m = mean[r], s = rstd[r], count = static_cast<float>(channels);
    float sum_g = 0, sum_gn = 0;
    for_channels<pack>(lanes, channels, [&](int64_t c) {
      float g[pack], n[pack];
      load_row(r, c, m, s, g, n);
      SIXFOLD_UNROLL
      for (int i = 0; i < pack; ++i) {
        sum_g += g[i];
        sum_gn += g[i] * n[i];
      }
    });
    const float average_g = lanes.sum(sum_g) / count, average_gn = lanes.sum(sum_gn) / count;
    for_channels<pack>(lanes, channels, [&](int64_t c) {
      float g[pack], n[pack], sum[pack];
      load_row(r, c, m, s, g, n);
      load(dx + r * channels + c, sum);
      SIXFOLD_UNROLL
      for (int i = 0; i < pack; ++i) sum[i] += layernorm_gradient(g[i], average_g, n[i], average_gn, s);
      store(dx + r * channels + c, sum);
    });
  }

 private:
  /// The gradient of the normalised x and that itself, of channels from c on.
  SIXFOLD_DEVICE void load_row(int64_t r, int64_t c, float m, float s, float (&g)[pack], float (&n)[pack]) const {
    float weight[pack];
    load(dy + r * channels + c, g);
    load(x + r * channels + c, n);
    load(gamma + c, weight);
    SIXFOLD_UNROLL
    for (int i = 0; i < pack; ++i) {
      g[i] *= weight[i];
      n[i] = normalized(n[i], m, s);
    }
  }
};

/// Terms of sum_over_rows: of dgamma, and of dbeta.
template <typename T>
struct WeightTerms {
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  int64_t channels;
  template <int n>
  SIXFOLD_DEVICE void add(int64_t row, int64_t column, float (&sums)[2][n]) const {
    const float m = mean[row], s = rstd[row];
    float gradient[n], values[n];
    load(dy + row * channels + column, gradient);
    load(x + row * channels + column, values);
    SIXFOLD_UNROLL
    for (int i = 0; i < n; ++i) {
      sums[0][i] += gradient[i] * normalized(values[i], m, s);
      sums[1][i] += gradient[i];
    }
  }
};

}  // namespace

void layernorm_forward(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps,
                       const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const int64_t rows = checked_dim(x, 2, 0, "layernorm x"), channels = x.dim(1);
  dispatch_float(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* in = checked<T>(x, {rows, channels}, "layernorm x");
    with_wide_packs<T>(channels, {in, gamma.raw(), beta.raw(), y.raw()}, [&]<int pack>() {
      for_each_row_of(context, rows, channels,
                      Forward<T, pack>{in, normalize_rows<T, pack>(rows, channels, gamma, beta, eps, y, mean, rstd)});
    });
  });
}

void residual_layernorm_forward(Context& context, const DropoutSite& site, const TokenRows& token_rows, const Tensor& x,
                                const Tensor& residual, const Tensor& gamma, const Tensor& beta, float eps,
                                const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const int64_t rows = checked_dim(x, 2, 0, "layernorm x"), channels = x.dim(1);
  const DropoutMask mask(site);
  SIXFOLD_CHECK_EQ(token_rows.channel_offset, 0, "a row of LayerNorm has all channels");
  dispatch_float(x.dtype(), [&](auto element) {
    using T = decltype(element);
    with_wide_packs<T>(
        channels, {x.raw(), residual.raw(), gamma.raw(), beta.raw(), sum.raw(), y.raw()}, [&]<int pack>() {
          for_each_row_of(
              context, rows, channels,
              ResidualForward<T, pack>{dropout_rows < T, pack == 1 ? 1 : 4 > (mask, token_rows, x, residual, sum),
                                       normalize_rows<T, pack>(rows, channels, gamma, beta, eps, y, mean, rstd)});
        });
  });
}

void layernorm_backward_input(Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                              const Tensor& mean, const Tensor& rstd, const Tensor& dx) {
  const int64_t rows = checked_dim(x, 2, 0, "layernorm x"), channels = x.dim(1);
  const float* means = checked<float>(mean, {rows}, "layernorm mean");
  const float* rstds = checked<float>(rstd, {rows}, "layernorm rstd");
  dispatch_float(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* gradient = checked<T>(dy, {rows, channels}, "layernorm dy");
    const T* in = checked<T>(x, {rows, channels}, "layernorm x");
    const T* weight = checked<T>(gamma, {channels}, "layernorm gamma");
    T* out = checked<T>(dx, {rows, channels}, "layernorm dx");
    with_wide_packs<T>(channels, {gradient, in, weight, out}, [&]<int pack>() {
      for_each_row_of(context, rows, channels,
                      BackwardInput<T, pack>{gradient, in, weight, means, rstds, channels, out});
    });
  });
}

void layernorm_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const Tensor& mean,
                               const Tensor& rstd, const Tensor& dgamma, const Tensor& dbeta) {
  const int64_t rows = checked_dim(x, 2, 0, "layernorm x"), channels = x.dim(1);
  if (!dgamma.defined() && !dbeta.defined()) return;
  const SumPlaces<2> places{{dgamma.defined() ? checked<float>(dgamma, {channels}, "layernorm dgamma") : nullptr,
                             dbeta.defined() ? checked<float>(dbeta, {channels}, "layernorm dbeta") : nullptr}};
  dispatch_float(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const WeightTerms<T> terms{
        checked<T>(dy, {rows, channels}, "layernorm dy"), checked<T>(x, {rows, channels}, "layernorm x"),
        checked<float>(mean, {rows}, "layernorm mean"), checked<float>(rstd, {rows}, "layernorm rstd"), channels};
    sum_over_rows<T>(context, rows, channels, {terms.dy, terms.x}, terms, places);
  });
}

}  // namespace sixfold::kernels::cuda
