// One rank of the model of two numbers in training, on any number of ranks, and the same in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/parallel/strategy.h"
#include "runtime/train/trainer.h"
#include "tests/harness.h"
#include "tests/two_number_model.h"

namespace sixfold::test {

/// Work of a run.
struct TrainerJob {
  int64_t global_batch = 8;
  int64_t micro_batch = 1;
  double clip_norm = 0;
  train::OptimizerOptions optimizer = sgd();
  train::FillRow fill_row = mixed_rows;
  parallel::StrategyOptions strategy;

  static train::OptimizerOptions sgd() {
    train::OptimizerOptions options;
    options.kind = train::OptimizerKind::Sgd;
    options.weight_decay = 0;
    return options;
  }
};

inline constexpr float kLearningRate = 0.1f;

/// One rank's model, strategy and trainer. w starts as 1 + token / 4, a as 1, unless given.
struct Replica {
  LookUp look_up;
  Loss loss;
  kernels::Context context;
  std::unique_ptr<parallel::Strategy> strategy;
  std::unique_ptr<train::Optimizer> optimizer;
  train::Trainer trainer;

  Replica(comm::World& world, const TrainerJob& job)
      : context{world.memory(), 1},
        strategy(parallel::make_strategy({&look_up, &loss}, world.memory(), world.group(), job.strategy)),
        optimizer(train::make_optimizer(job.optimizer, strategy->state_elements(), world.memory())),
        trainer({world, world.group(), nullptr, {&look_up, &loss}, *strategy, *optimizer, context}, options(world, job),
                job.fill_row) {
    set([](int64_t token) { return 1.0f + 0.25f * static_cast<float>(token); });
  }

  static train::TrainerOptions options(comm::World& world, const TrainerJob& job) {
    train::TrainerOptions options;
    options.seq_len = kSeqLen;
    options.share = {job.global_batch, job.micro_batch, world.rank(), world.size()};
    options.lr = {kLearningRate, kLearningRate, 0, 100};
    options.clip_norm = job.clip_norm;
    options.check_replicas_every = 1;
    return options;
  }
  void set(const std::function<float(int64_t)>& w) {
    strategy->load_values([&](Parameter& parameter) {
      for (int64_t i = 0; i < parameter.value.numel(); ++i) {
        parameter.value.data<float>()[i] = parameter.name == "w" ? w(i) : 1.0f;
      }
    });
  }
  /// w[0], .., w[4], a; collective
  std::vector<float> all(bool gradients) {
    std::vector<float> result;
    for (parallel::Unit* unit : parallel::UnitList{&look_up, &loss}) {
      for (Parameter* parameter : unit->parameters()) {
        const Tensor whole = Tensor::empty(parameter->full_shape, DType::F32, context.memory, Category::Other);
        if (gradients) {
          strategy->gather_gradient(*parameter, whole);
        } else {
          strategy->gather_value(*parameter, whole);
        }
        result.insert(result.end(), whole.data<float>(), whole.data<float>() + whole.numel());
      }
    }
    return result;
  }
};

/// The same model on one rank, in double, plain SGD. The loss is the mean over the valid tokens of the global batch.
struct Oracle {
  std::vector<double> w, grad_w;
  double a = 1, grad_a = 0, loss = 0;

  Oracle() : w(kNumTokens), grad_w(kNumTokens) {
    for (size_t i = 0; i < w.size(); ++i) w[i] = 1 + 0.25 * static_cast<double>(i);
  }
  double mean_loss(int64_t step, int64_t num_rows, bool gradients) {
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (int64_t row = 0; row < num_rows; ++row) {
      std::vector<int32_t> tokens(kSeqLen), targets(kSeqLen);
      mixed_rows(step, row, tokens, targets);
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (targets[i] >= 0) pairs.push_back({tokens[i], targets[i]});
      }
    }
    const double n = static_cast<double>(pairs.size());
    double sum = 0;
    for (const auto& [token, target] : pairs) {
      const double x = w[static_cast<size_t>(token)], error = a * x - target;
      sum += error * error / 2 / n;
      if (!gradients) continue;
      grad_w[static_cast<size_t>(token)] += error * a / n;
      grad_a += error * x / n;
    }
    return sum;
  }
  double step(int64_t step, int64_t num_rows) {
    std::fill(grad_w.begin(), grad_w.end(), 0.0);
    grad_a = 0;
    return loss = mean_loss(step, num_rows, true);
  }
  double norm() const {
    double sum = grad_a * grad_a;
    for (double g : grad_w) sum += g * g;
    return std::sqrt(sum);
  }
  void update(double scale = 1) {
    for (size_t i = 0; i < w.size(); ++i) w[i] -= kLearningRate * scale * grad_w[i];
    a -= kLearningRate * scale * grad_a;
  }
  std::vector<double> all(bool gradients) const {
    std::vector<double> result = gradients ? grad_w : w;
    result.push_back(gradients ? grad_a : a);
    return result;
  }
};

inline void expect_near(const std::vector<float>& values, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance) << "element " << i;
}

/// Every test of training runs with DDP (stage 0) and the three stages of ZeRO.
class TrainerOfStage : public testing::TestWithParam<int> {
 protected:
  static TrainerJob stage_job() {
    TrainerJob job;
    job.strategy.zero = GetParam();
    return job;
  }
};

}  // namespace sixfold::test
