// A model of two numbers a token, small enough to be written out in double:
//
//   x = w[token],  loss = (a x - target)^2 / 2,  summed over the valid tokens of a micro-batch
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "runtime/parallel/unit.h"

namespace sixfold::test {

using parallel::MicroBatch;
using parallel::Parameter;
using parallel::Saved;

inline constexpr int64_t kNumTokens = 5;
inline constexpr int64_t kSeqLen = 3;
inline constexpr int32_t kPoison = 1000;  // a target whose loss and gradient are not finite

/// x of each token.
class LookUp final : public parallel::Unit {
 public:
  LookUp() {
    w_.name = "w";
    w_.full_shape = {kNumTokens};
    w_.decay = true;
  }
  const std::string& name() const override { return name_; }
  std::vector<Parameter*> parameters() override { return {&w_}; }
  Tensor forward(kernels::Context& context, const Tensor&, const MicroBatch& batch, Saved& saved) override {
    const Tensor x = Tensor::empty({batch.tokens.numel()}, DType::F32, context.memory, Category::Activations);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = w_.value.data<float>()[batch.tokens.data<int32_t>()[i]];
    if (batch.training) saved.tensors = {Tensor()};
    return x;
  }
  Tensor backward_input(kernels::Context&, const Tensor& dy, const MicroBatch&, Saved& saved) override {
    saved.tensors.at(0) = dy;
    return {};
  }
  void backward_weights(kernels::Context&, const MicroBatch& batch, Saved& saved,
                        const parallel::GradientReady& ready) override {
    const Tensor dy = saved.tensors.at(0);
    for (int64_t i = 0; i < dy.numel(); ++i) {
      w_.grad.data<float>()[batch.tokens.data<int32_t>()[i]] += dy.data<float>()[i];
    }
    saved.tensors.clear();
    ready(w_);
  }

 private:
  const std::string name_ = "look up";
  Parameter w_;
};

/// The sum of a micro-batch's losses.
class Loss final : public parallel::Unit {
 public:
  Loss() {
    a_.name = "a";
    a_.full_shape = {1};
  }
  const std::string& name() const override { return name_; }
  std::vector<Parameter*> parameters() override { return {&a_}; }
  Tensor forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch, Saved& saved) override {
    if (batch.training) {
      saved.tensors = {x, Tensor()};
      for (int64_t index : batch.sample_index) samples_.push_back({batch.step, index});
    }
    double sum = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int32_t target = batch.targets.data<int32_t>()[i];
      if (target >= 0) sum += error(x, batch, i) * error(x, batch, i) / 2;
    }
    const Tensor loss = Tensor::empty({1}, DType::F32, context.memory, Category::Activations);
    loss.data<float>()[0] = static_cast<float>(sum);
    return loss;
  }
  Tensor backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch, Saved& saved) override {
    const Tensor x = saved.tensors.at(0);
    saved.tensors.at(1) = dy;
    const Tensor dx = Tensor::zeros({x.numel()}, DType::F32, context.memory, Category::Activations);
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (batch.targets.data<int32_t>()[i] >= 0) {
        dx.data<float>()[i] = static_cast<float>(dy.data<float>()[0] * error(x, batch, i) * a_.value.data<float>()[0]);
      }
    }
    return dx;
  }
  void backward_weights(kernels::Context&, const MicroBatch& batch, Saved& saved,
                        const parallel::GradientReady& ready) override {
    const Tensor x = saved.tensors.at(0), dy = saved.tensors.at(1);
    double sum = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (batch.targets.data<int32_t>()[i] >= 0) sum += error(x, batch, i) * x.data<float>()[i];
    }
    a_.grad.data<float>()[0] += static_cast<float>(dy.data<float>()[0] * sum);
    saved.tensors.clear();
    ready(a_);
  }

  const std::vector<std::pair<int64_t, int64_t>>& samples() const { return samples_; }  // (step, sample) seen

 private:
  double error(const Tensor& x, const MicroBatch& batch, int64_t i) const {
    const int32_t target = batch.targets.data<int32_t>()[i];
    if (target == kPoison) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(a_.value.data<float>()[0]) * x.data<float>()[i] - target;
  }

  const std::string name_ = "loss";
  Parameter a_;
  std::vector<std::pair<int64_t, int64_t>> samples_;
};

/// A batch of every step that differs in tokens and targets; about a third of the targets are masked, unevenly.
inline void mixed_rows(int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
  for (int64_t t = 0; t < kSeqLen; ++t) {
    const auto i = static_cast<size_t>(t);
    tokens[i] = static_cast<int32_t>((7 * step + 3 * row + t * t) % kNumTokens);
    targets[i] = static_cast<int32_t>((step + 2 * row + t) % 4);
    if ((row + t) % 3 == 0 || row == 5) targets[i] = -1;
  }
}

}  // namespace sixfold::test
