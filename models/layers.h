// The layers of a GPT that no tensor parallelism cuts: LayerNorm and dropout.
#pragma once

#include <string>
#include <vector>

#include "models/config.h"
#include "runtime/parallel/tp_layers.h"

namespace sixfold::models {

/// y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, over the C channels of each token row. Keeps nothing of a
/// forward pass: the caller passes x and the statistics in again.
class LayerNorm {
 public:
  /// Every rank of `tp` has the parameters; with sequence parallelism each adds the gradient of its own rows.
  LayerNorm(const std::string& name, int64_t dim, const parallel::TpGroup& tp);
  LayerNorm(const LayerNorm&) = delete;  // parameters are handed out by pointer
  LayerNorm& operator=(const LayerNorm&) = delete;

  /// x, y [R, C]; `statistics` receives [2, R]: means, then 1 / standard deviations.
  Tensor forward(kernels::Context& context, const Tensor& x, Tensor& statistics) const;
  /// y of x + residual, which replaces x; values of x are dropped as `site` says.
  Tensor forward_residual(kernels::Context& context, const kernels::DropoutSite& site, const kernels::TokenRows& rows,
                          const Tensor& x, const Tensor& residual, Tensor& statistics) const;
  /// dx += the gradient of x.
  void backward_input(kernels::Context& context, const Tensor& dy, const Tensor& x, const Tensor& statistics,
                      const Tensor& dx) const;
  /// Adds to both gradients, then reports bias and weight as ready; leaves out what is frozen.
  void backward_weights(kernels::Context& context, const Tensor& dy, const Tensor& x, const Tensor& statistics,
                        const parallel::GradientReady& ready);

  std::vector<parallel::Parameter*> parameters() { return {&weight_, &bias_}; }

 private:
  parallel::Parameter weight_, bias_;
};

/// Where GPT-2 drops values: the sum of both embeddings, and what each half of a block adds to the residual.
enum class DropoutPlace : int { Embedding, Attention, Mlp };

/// The kernels' site of a place: the configured probability in training, 0 in evaluation. The embedding is in layer 0.
kernels::DropoutSite dropout_site(const GptConfig& config, DropoutPlace place, int64_t layer,
                                  const parallel::MicroBatch& batch);

}  // namespace sixfold::models
