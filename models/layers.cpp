#include "models/layers.h"

namespace sixfold::models {

namespace {

constexpr float kEpsilon = 1e-5f;  // GPT-2's

Tensor means(const Tensor& statistics) {
  return statistics.slice(0, {statistics.dim(1)});
}
Tensor reciprocal_deviations(const Tensor& statistics) {
  return statistics.slice(statistics.dim(1), {statistics.dim(1)});
}

}  // namespace

LayerNorm::LayerNorm(const std::string& name, int64_t dim, const parallel::TpGroup& tp)
    : weight_(parallel::make_parameter(name + ".weight", {dim}, {}, {.constant = 1}, false)),
      bias_(parallel::make_parameter(name + ".bias", {dim}, {}, {}, false)) {
  weight_.partial = bias_.partial = tp.sequence_parallel();
}

Tensor LayerNorm::forward(kernels::Context& context, const Tensor& x, Tensor& statistics) const {
  Tensor y = parallel::activation(context, x.shape());
  statistics = parallel::f32_activation(context, {2, x.dim(0)});
  kernels::layernorm_forward(context, x, weight_.value, bias_.value, kEpsilon, y, means(statistics),
                             reciprocal_deviations(statistics));
  return y;
}

Tensor LayerNorm::forward_residual(kernels::Context& context, const kernels::DropoutSite& site,
                                   const kernels::TokenRows& rows, const Tensor& x, const Tensor& residual,
                                   Tensor& statistics) const {
  Tensor y = parallel::activation(context, x.shape());
  statistics = parallel::f32_activation(context, {2, x.dim(0)});
  kernels::residual_layernorm_forward(context, site, rows, x, residual, weight_.value, bias_.value, kEpsilon, x, y,
                                      means(statistics), reciprocal_deviations(statistics));
  return y;
}

void LayerNorm::backward_input(kernels::Context& context, const Tensor& dy, const Tensor& x, const Tensor& statistics,
                               const Tensor& dx) const {
  kernels::layernorm_backward_input(context, dy, x, weight_.value, means(statistics), reciprocal_deviations(statistics),
                                    dx);
}

void LayerNorm::backward_weights(kernels::Context& context, const Tensor& dy, const Tensor& x, const Tensor& statistics,
                                 const parallel::GradientReady& ready) {
  kernels::layernorm_backward_weight(context, dy, x, means(statistics), reciprocal_deviations(statistics),
                                     parallel::wanted_gradient(weight_), parallel::wanted_gradient(bias_));
  parallel::report_ready(bias_, ready);
  parallel::report_ready(weight_, ready);
}

kernels::DropoutSite dropout_site(const GptConfig& config, DropoutPlace place, int64_t layer,
                                  const parallel::MicroBatch& batch) {
  kernels::DropoutSite site;
  site.probability = batch.training ? config.dropout : 0;
  site.seed = config.seed;
  site.step = batch.step;
  site.layer = static_cast<int>(layer);
  site.site = static_cast<int>(place);
  return site;
}

}  // namespace sixfold::models
