// The first and the last unit of a GPT: embedding and head. They share the token table.
#pragma once

#include <string>
#include <vector>

#include "models/layers.h"
#include "runtime/parallel/unit.h"

namespace sixfold::models {

/// Unit "embedding": tokens -> [R, C] = drop(wte[token] + wpe[position]).
class Embedding final : public parallel::Unit {
 public:
  Embedding(const GptConfig& config, const parallel::TpGroup& tp);

  const std::string& name() const override { return name_; }
  std::vector<parallel::Parameter*> parameters() override { return {&wte_.weight(), &wpe_}; }
  /// Throws CheckError for a token outside the vocabulary and for positions beyond the configured ones.
  Tensor forward(kernels::Context& context, const Tensor& x, const parallel::MicroBatch& batch,
                 parallel::Saved& saved) override;
  Tensor backward_input(kernels::Context& context, const Tensor& dy, const parallel::MicroBatch& batch,
                        parallel::Saved& saved) override;
  void backward_weights(kernels::Context& context, const parallel::MicroBatch& batch, parallel::Saved& saved,
                        const parallel::GradientReady& ready) override;

  parallel::Parameter& token_table() { return wte_.weight(); }

 private:
  const GptConfig config_;
  const std::string name_ = "embedding";
  parallel::VocabParallelEmbedding wte_;
  parallel::Parameter wpe_;
};

/// Unit "head": [R, C] -> the sum of the losses of the valid targets, with logits = ln_f(x) wte^T. It borrows wte: adds
/// to its gradient and leaves it to the embedding to report it.
class Head final : public parallel::Unit {
 public:
  Head(const GptConfig& config, parallel::Parameter& token_table);

  const std::string& name() const override { return name_; }
  std::vector<parallel::Parameter*> parameters() override { return ln_f_.parameters(); }
  std::vector<parallel::Parameter*> borrowed_parameters() override { return {&lm_head_.weight()}; }
  /// Throws CheckError for a target beyond the vocabulary.
  Tensor forward(kernels::Context& context, const Tensor& x, const parallel::MicroBatch& batch,
                 parallel::Saved& saved) override;
  Tensor backward_input(kernels::Context& context, const Tensor& dy, const parallel::MicroBatch& batch,
                        parallel::Saved& saved) override;
  void backward_weights(kernels::Context& context, const parallel::MicroBatch& batch, parallel::Saved& saved,
                        const parallel::GradientReady& ready) override;

  /// Logits without the loss: [R, padded vocabulary] of x [R, C].
  Tensor logits(kernels::Context& context, const Tensor& x) const;

 private:
  const std::string name_ = "head";
  LayerNorm ln_f_;
  parallel::VocabParallelLogits lm_head_;
};

}  // namespace sixfold::models
