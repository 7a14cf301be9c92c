#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/update_rules.h"

namespace sixfold::kernels::cuda {

namespace {

struct AdamW {
  AdamWRule rule;
  const float* scale;  // as in Sgd
  const float* gradient;
  float* weight;
  float* first;
  float* second;
  BF16* rounded;  // nullptr: not wanted
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    const float factor = scale == nullptr ? 1.0f : *scale;
    if (std::isnan(factor)) return;
    float g[n], w[n], m[n], v[n];
    load(gradient + i, g);
    load(weight + i, w);
    load(first + i, m);
    load(second + i, v);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) rule.update(g[k] * factor, w[k], m[k], v[k]);
    store(weight + i, w);
    store(first + i, m);
    store(second + i, v);
    if (rounded != nullptr) store(rounded + i, w);
  }
};

struct Sgd {
  SgdRule rule;
  const float* scale;  // of gradients; nullptr: 1
  const float* gradient;
  float* weight;
  BF16* rounded;  // nullptr: not wanted
  template <int n>
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    const float factor = scale == nullptr ? 1.0f : *scale;
    if (std::isnan(factor)) return;
    float g[n], w[n];
    load(gradient + i, g);
    load(weight + i, w);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) rule.update(g[k] * factor, w[k]);
    store(weight + i, w);
    if (rounded != nullptr) store(rounded + i, w);
  }
};

const float* checked_scale(const Tensor& scale) {
  return scale.defined() ? checked<float>(scale, {1}, "scale of gradients") : nullptr;
}

BF16* checked_rounded(const Tensor& rounded, int64_t num_elements) {
  return rounded.defined() ? checked_elements<BF16>(rounded, num_elements, "rounded weights") : nullptr;
}

}  // namespace

void adamw_update(Context& context, const AdamWParams& params, const Tensor& scale, const Tensor& g, const Tensor& w,
                  const Tensor& m, const Tensor& v, const Tensor& rounded) {
  const int64_t count = w.numel();
  const AdamW f{AdamWRule(params),
                checked_scale(scale),
                checked_elements<float>(g, count, "adamw g"),
                checked_elements<float>(w, count, "adamw w"),
                checked_elements<float>(m, count, "adamw m"),
                checked_elements<float>(v, count, "adamw v"),
                checked_rounded(rounded, count)};
  for_each_element(context, count, {f.gradient, f.weight, f.first, f.second, f.rounded}, f);
}

void sgd_update(Context& context, float lr, float weight_decay, const Tensor& scale, const Tensor& g, const Tensor& w,
                const Tensor& rounded) {
  const int64_t count = w.numel();
  const Sgd f{SgdRule(lr, weight_decay), checked_scale(scale), checked_elements<float>(g, count, "sgd g"),
              checked_elements<float>(w, count, "sgd w"), checked_rounded(rounded, count)};
  for_each_element(context, count, {f.gradient, f.weight, f.rounded}, f);
}

}  // namespace sixfold::kernels::cuda
