#include "runtime/parallel/recompute.h"

namespace sixfold::parallel {

Tensor Recompute::forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch, Saved& saved) {
  if (!batch.training) return unit_.forward(context, x, batch, saved);
  Saved dropped;
  Tensor y = unit_.forward(context, x, batch, dropped);
  saved.tensors = {x};
  return y;
}

Tensor Recompute::backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch, Saved& saved) {
  SIXFOLD_CHECK_EQ(saved.tensors.size(), size_t{1}, name() + ": backward without a training forward");
  const Tensor x = std::move(saved.tensors[0]);
  saved.tensors.clear();
  unit_.forward(context, x, batch, saved);
  return unit_.backward_input(context, dy, batch, saved);
}

void Recompute::backward_weights(kernels::Context& context, const MicroBatch& batch, Saved& saved,
                                 const GradientReady& ready) {
  unit_.backward_weights(context, batch, saved, ready);
}

}  // namespace sixfold::parallel
