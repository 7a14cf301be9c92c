// One transformer block: x + attention(ln_1(x)), then x + mlp(ln_2(x)).
#pragma once

#include <string>
#include <vector>

#include "models/layers.h"
#include "runtime/parallel/ulysses.h"
#include "runtime/parallel/unit.h"

namespace sixfold::models {

/// Unit "h.N": [r, C] -> [r, C], for the r rows that this rank has between layers (tp_layers.h).
class Block final : public parallel::Unit {
 public:
  /// Heads are cut over `tp` as the columns of c_attn are. `sp`: ranks that have other positions of the same sequences
  /// (ulysses.h); nullptr: none.
  Block(const GptConfig& config, int64_t layer, const parallel::TpGroup& tp, comm::Communicator* sp);

  const std::string& name() const override { return name_; }
  std::vector<parallel::Parameter*> parameters() override;
  Tensor forward(kernels::Context& context, const Tensor& x, const parallel::MicroBatch& batch,
                 parallel::Saved& saved) override;
  Tensor backward_input(kernels::Context& context, const Tensor& dy, const parallel::MicroBatch& batch,
                        parallel::Saved& saved) override;
  void backward_weights(kernels::Context& context, const parallel::MicroBatch& batch, parallel::Saved& saved,
                        const parallel::GradientReady& ready) override;

 private:
  Tensor forward_attention(kernels::Context& context, const Tensor& x, const parallel::MicroBatch& batch,
                           parallel::Saved& saved) const;
  // From the input of the block and what the attention half adds to it, which becomes their sum.
  Tensor forward_mlp(kernels::Context& context, const Tensor& x, const Tensor& added, const parallel::MicroBatch& batch,
                     parallel::Saved& saved) const;
  // The gradient of the residual goes through both halves in place.
  void backward_input_mlp(kernels::Context& context, const Tensor& dresidual, const parallel::MicroBatch& batch,
                          parallel::Saved& saved) const;
  void backward_input_attention(kernels::Context& context, const Tensor& dresidual, const parallel::MicroBatch& batch,
                                parallel::Saved& saved) const;
  // Weight gradients of the linears of each half.
  void add_gradients_mlp(kernels::Context& context, parallel::Saved& saved) const;
  void add_gradients_attention(kernels::Context& context, parallel::Saved& saved) const;

  const GptConfig config_;
  const int64_t layer_;
  const parallel::TpGroup tp_;
  const std::string name_;
  LayerNorm ln_1_;
  parallel::ColumnParallelLinear c_attn_;
  parallel::UlyssesAttention attention_;
  parallel::RowParallelLinear attn_c_proj_;
  LayerNorm ln_2_;
  parallel::ColumnParallelLinear c_fc_;
  parallel::RowParallelLinear mlp_c_proj_;
};

}  // namespace sixfold::models
