// Optimizers: what turns gradients into new parameters, on the pieces of the parameters that this rank updates.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::train {

enum class OptimizerKind : uint8_t { AdamW, Sgd };
std::string_view optimizer_name(OptimizerKind kind);
/// Throws ConfigError with the allowed names.
OptimizerKind parse_optimizer(std::string_view name);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;  // AdamW
  float weight_decay = 0.1f;                       // of segments that decay (matrices), decoupled from the gradient
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates the value of every segment in place from its gradient times `scale`, f32 [1] where kernels work
  /// (undefined: 1). Where that is NaN nothing changes, which whoever reads it says by skipped(). Local: no rank waits.
  virtual void update(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments, float lr,
                      const Tensor& scale) = 0;
  /// The last update was none: it does not count.
  virtual void skipped() = 0;
  /// What it keeps for each element: f32 [state_elements] each, in a fixed order (AdamW: first and second moment).
  virtual std::vector<Tensor> moments() const = 0;
};

/// f32 numbers that an optimizer keeps for each element that the rank updates: the moments (AdamW 2, SGD 0), and the
/// master weight of parameters that are bf16.
int floats_per_element(OptimizerKind kind, DType param_dtype);

/// `state_elements` as Strategy::state_elements() says; the state is taken from `place`, Category::Optimizer, zeroed;
/// with it, f32 master weights of parameters that are bf16.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, int64_t state_elements,
                                          const kernels::Place& place);

}  // namespace sixfold::train
