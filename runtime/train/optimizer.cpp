#include "runtime/train/optimizer.h"

#include <string>

namespace sixfold::train {

namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, int64_t state_elements, Memory& memory)
      : options_(options),
        m_(Tensor::zeros({state_elements}, DType::F32, memory, Category::Optimizer)),
        v_(Tensor::zeros({state_elements}, DType::F32, memory, Category::Optimizer)) {}

  void update(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments, float lr,
              float gradient_scale) override {
    ++num_updates_;  // bias correction counts updates, not steps: a skipped step leaves the moments as they were
    for (const parallel::UpdateSegment& segment : segments) {
      const int64_t n = segment.value.numel();
      kernels::AdamWParams params;
      params.lr = lr;
      params.beta1 = options_.beta1;
      params.beta2 = options_.beta2;
      params.eps = options_.eps;
      params.weight_decay = segment.decay ? options_.weight_decay : 0.0f;
      params.gradient_scale = gradient_scale;
      params.step = num_updates_;
      kernels::adamw_update(context, params, segment.grad, segment.value, m_.slice(segment.state_offset, {n}),
                            v_.slice(segment.state_offset, {n}));
    }
  }

  std::vector<Tensor> moments() const override { return {m_, v_}; }

 private:
  OptimizerOptions options_;
  Tensor m_, v_;  // [state_elements]
  int64_t num_updates_ = 0;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options) : options_(options) {}

  void update(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments, float lr,
              float gradient_scale) override {
    for (const parallel::UpdateSegment& segment : segments) {
      kernels::sgd_update(context, lr, gradient_scale, segment.decay ? options_.weight_decay : 0.0f, segment.grad,
                          segment.value);
    }
  }

  std::vector<Tensor> moments() const override { return {}; }

 private:
  OptimizerOptions options_;
};

}  // namespace

std::string_view optimizer_name(OptimizerKind kind) {
  return kind == OptimizerKind::AdamW ? "adamw" : "sgd";
}

OptimizerKind parse_optimizer(std::string_view name) {
  for (OptimizerKind kind : {OptimizerKind::AdamW, OptimizerKind::Sgd}) {
    if (name == optimizer_name(kind)) return kind;
  }
  throw ConfigError("--optimizer " + std::string(name) + ": allowed are adamw, sgd");
}

int moments_per_element(OptimizerKind kind) {
  return kind == OptimizerKind::AdamW ? 2 : 0;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, int64_t state_elements, Memory& memory) {
  if (options.kind == OptimizerKind::Sgd) return std::make_unique<Sgd>(options);
  return std::make_unique<AdamW>(options, state_elements, memory);
}

}  // namespace sixfold::train
