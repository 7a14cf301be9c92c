#include "runtime/train/optimizer.h"

#include <string>
#include <utility>

namespace sixfold::train {

namespace {

/// What an optimizer updates: the parameters themselves, or f32 master weights beside those that are bf16, so that
/// updates too small for 8 bits of mantissa add up.
class Masters {
 public:
  Masters(int64_t state_elements, const kernels::Place& place) : state_elements_(state_elements), place_(place) {}

  /// Before the first update: parameters have their initial values.
  void start(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments) {
    for (const parallel::UpdateSegment& segment : segments) {
      if (segment.value.dtype() == DType::F32) continue;
      if (!weights_.defined()) weights_ = kernels::zeros(place_, {state_elements_}, DType::F32, Category::Optimizer);
      kernels::convert(context, segment.value, weight(segment));
    }
  }
  Tensor weight(const parallel::UpdateSegment& segment) const {
    if (segment.value.dtype() == DType::F32) return segment.value;
    return weights_.slice(segment.state_offset, {segment.value.numel()});
  }
  static Tensor rounded(const parallel::UpdateSegment& segment) {
    return segment.value.dtype() == DType::F32 ? Tensor() : segment.value;
  }

 private:
  int64_t state_elements_;
  kernels::Place place_;
  Tensor weights_;  // [state_elements]; undefined where all parameters are f32
};

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, int64_t state_elements, const kernels::Place& place)
      : options_(options),
        masters_(state_elements, place),
        m_(kernels::zeros(place, {state_elements}, DType::F32, Category::Optimizer)),
        v_(kernels::zeros(place, {state_elements}, DType::F32, Category::Optimizer)) {}

  void update(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments, float lr,
              const Tensor& scale) override {
    if (num_updates_ == 0) masters_.start(context, segments);
    ++num_updates_;
    for (const parallel::UpdateSegment& segment : segments) {
      const int64_t n = segment.value.numel();
      kernels::AdamWParams params;
      params.lr = lr;
      params.beta1 = options_.beta1;
      params.beta2 = options_.beta2;
      params.eps = options_.eps;
      params.weight_decay = segment.decay ? options_.weight_decay : 0.0f;
      params.step = num_updates_;
      kernels::adamw_update(context, params, scale, segment.grad, masters_.weight(segment),
                            m_.slice(segment.state_offset, {n}), v_.slice(segment.state_offset, {n}),
                            Masters::rounded(segment));
    }
  }

  // Bias correction counts updates, not steps: one that was skipped has left the moments as they were.
  void skipped() override { --num_updates_; }

  std::vector<Tensor> moments() const override { return {m_, v_}; }

 private:
  OptimizerOptions options_;
  Masters masters_;
  Tensor m_, v_;  // [state_elements]
  int64_t num_updates_ = 0;
};

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, int64_t state_elements, const kernels::Place& place)
      : options_(options), masters_(state_elements, place) {}

  void update(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments, float lr,
              const Tensor& scale) override {
    if (!std::exchange(started_, true)) masters_.start(context, segments);
    for (const parallel::UpdateSegment& segment : segments) {
      kernels::sgd_update(context, lr, segment.decay ? options_.weight_decay : 0.0f, scale, segment.grad,
                          masters_.weight(segment), Masters::rounded(segment));
    }
  }

  void skipped() override {}

  std::vector<Tensor> moments() const override { return {}; }

 private:
  OptimizerOptions options_;
  Masters masters_;
  bool started_ = false;
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

int floats_per_element(OptimizerKind kind, DType param_dtype) {
  const int moments = kind == OptimizerKind::AdamW ? 2 : 0;
  return moments + (param_dtype == DType::F32 ? 0 : 1);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, int64_t state_elements,
                                          const kernels::Place& place) {
  if (options.kind == OptimizerKind::Sgd) return std::make_unique<Sgd>(options, state_elements, place);
  return std::make_unique<AdamW>(options, state_elements, place);
}

}  // namespace sixfold::train
