// Recompute: a unit that keeps nothing but its input, and works its forward out again before its backward (activation
// checkpointing). Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016, section 3.
#pragma once

#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

/// Costs one more forward a micro-batch. The same bits as without: dropout draws the same masks from (step, sample,
/// position), and parameters do not change in between. The second forward runs after before_backward(), so what a
/// strategy gathers for the backward serves both.
class Recompute final : public Unit {
 public:
  /// `unit` outlives this.
  explicit Recompute(Unit& unit) : unit_(unit) {}

  const std::string& name() const override { return unit_.name(); }
  std::vector<Parameter*> parameters() override { return unit_.parameters(); }
  std::vector<Parameter*> borrowed_parameters() override { return unit_.borrowed_parameters(); }
  Tensor forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch, Saved& saved) override;
  Tensor backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch, Saved& saved) override;
  void backward_weights(kernels::Context& context, const MicroBatch& batch, Saved& saved,
                        const GradientReady& ready) override;

 private:
  Unit& unit_;
};

}  // namespace sixfold::parallel
