// The trainer on a model of two numbers a token, small enough to be written out in double:
//
//   x = w[token],  loss = (a x - target)^2 / 2,  summed over the valid tokens of the global batch / their number
#include "runtime/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "runtime/parallel/strategy.h"
#include "tests/harness.h"

namespace sixfold::train {
namespace {

using parallel::MicroBatch;
using parallel::Parameter;
using parallel::Saved;

constexpr int64_t kNumTokens = 5;
constexpr int64_t kSeqLen = 3;
constexpr int32_t kPoison = 1000;  // a target whose loss and gradient are not finite

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

// A batch of every step that differs in tokens and targets; about a third of the targets are masked, unevenly.
void mixed_rows(int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
  for (int64_t t = 0; t < kSeqLen; ++t) {
    const auto i = static_cast<size_t>(t);
    tokens[i] = static_cast<int32_t>((7 * step + 3 * row + t * t) % kNumTokens);
    targets[i] = static_cast<int32_t>((step + 2 * row + t) % 4);
    if ((row + t) % 3 == 0 || row == 5) targets[i] = -1;
  }
}

struct Job {
  int64_t global_batch = 8;
  int64_t micro_batch = 1;
  double clip_norm = 0;
  OptimizerOptions optimizer = sgd();
  FillRow fill_row = mixed_rows;
  parallel::StrategyOptions strategy;

  static OptimizerOptions sgd() {
    OptimizerOptions options;
    options.kind = OptimizerKind::Sgd;
    options.weight_decay = 0;
    return options;
  }
};

constexpr float kLearningRate = 0.1f;

// One rank's model, strategy and trainer. w starts as 1 + token / 4, a as 1, unless given.
struct Replica {
  LookUp look_up;
  Loss loss;
  kernels::Context context;
  std::unique_ptr<parallel::Strategy> strategy;
  std::unique_ptr<Optimizer> optimizer;
  Trainer trainer;

  Replica(comm::World& world, const Job& job)
      : context{world.memory(), 1},
        strategy(parallel::make_strategy({&look_up, &loss}, world.memory(), world.group(), job.strategy)),
        optimizer(make_optimizer(job.optimizer, strategy->state_elements(), world.memory())),
        trainer({world, world.group(), nullptr, {&look_up, &loss}, *strategy, *optimizer, context}, options(world, job),
                job.fill_row) {
    set([](int64_t token) { return 1.0f + 0.25f * static_cast<float>(token); });
  }

  static TrainerOptions options(comm::World& world, const Job& job) {
    TrainerOptions options;
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
  // w[0], .., w[4], a; collective
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

// The same model on one rank, in double, plain SGD.
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

void expect_near(const std::vector<float>& values, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance) << "element " << i;
}

/// Every test of training runs with DDP and the three stages of ZeRO.
class TrainerOfStage : public testing::TestWithParam<int> {
 protected:
  static Job stage_job() {
    Job job;
    job.strategy.zero = GetParam();
    return job;
  }
};
INSTANTIATE_TEST_SUITE_P(Zero, TrainerOfStage, testing::Values(0, 1, 2, 3));

// Micro-batches x rows of 1x8, 2x4, 4x2 and 8x1 on one rank, and what is left of them on two and four.
TEST_P(TrainerOfStage, EveryCutOfTheBatchIsTheSameStep) {
  for (int num_ranks : {1, 2, 4}) {
    for (int64_t micro_batch = 8 / num_ranks; micro_batch >= 1; micro_batch /= 2) {
      for (const bool overlap : {true, false}) {
        SCOPED_TRACE(std::to_string(num_ranks) + " ranks, micro-batches of " + std::to_string(micro_batch));
        Job job = stage_job();
        job.micro_batch = micro_batch;
        job.strategy.bucket_bytes = 0;
        job.strategy.overlap = overlap;
        test::run_ranks(num_ranks, [&](comm::World& world) {
          Replica replica(world, job);
          Oracle oracle;
          for (int64_t step = 0; step < 5; ++step) {
            const double loss = oracle.step(step, 8);
            const StepResult result = replica.trainer.step([&](int64_t at) {
              EXPECT_EQ(at, step + 1);
              expect_near(replica.all(true), oracle.all(true), 2e-6);
            });
            oracle.update();
            EXPECT_EQ(result.step, step + 1);
            EXPECT_NEAR(result.loss, loss, 1e-6);
            EXPECT_NEAR(result.grad_norm, oracle.norm(), 3e-6);
            EXPECT_FLOAT_EQ(result.lr, kLearningRate);
            EXPECT_EQ(result.num_tokens, 14);  // 24 - 8 with (row + t) % 3 == 0 - 2 more of row 5
            expect_near(replica.all(false), oracle.all(false), 3e-6);
          }
          // Dropout is keyed by (step, sample): each rank saw its rows of each step, in order.
          size_t seen = 0;
          for (int64_t step = 0; step < 5; ++step) {
            for (int64_t row = world.rank(); row < 8; row += world.size()) {
              EXPECT_EQ(replica.loss.samples().at(seen++), std::pair(step, step * 8 + row));
            }
          }
          EXPECT_EQ(seen, replica.loss.samples().size());
        });
      }
    }
  }
}

// Rank 0 holds three valid tokens of loss 2, rank 1 one of loss 6: the mean over tokens is 3, the mean of means 4.
TEST_P(TrainerOfStage, LossIsTheMeanOverValidTokensWhoeverHoldsThem) {
  Job job = stage_job();
  job.global_batch = 2;
  job.fill_row = [](int64_t, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = static_cast<int32_t>(row);
      targets[t] = row == 0 || t == 1 ? 0 : -1;
    }
  };
  test::run_ranks(2, [&](comm::World& world) {
    Replica replica(world, job);
    replica.set([](int64_t token) { return token == 0 ? 2.0f : std::sqrt(12.0f); });
    const StepResult result = replica.trainer.step([&](int64_t) {
      // d/dw = a^2 w / 4 a token, d/da = a w^2 / 4 a token
      expect_near(replica.all(true), {3 * 2.0 / 4, std::sqrt(12.0) / 4, 0, 0, 0, (3 * 4 + 12) / 4.0}, 1e-6);
    });
    EXPECT_NEAR(result.loss, 3.0, 1e-6);
    EXPECT_EQ(result.num_tokens, 4);
  });
}

TEST_P(TrainerOfStage, ARankWithoutValidTokensTakesPart) {
  Job job = stage_job();
  job.global_batch = 4;
  job.fill_row = [](int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
    mixed_rows(step, 1, tokens, targets);
    const bool masked = step == 0 ? row % 2 == 1 : true;  // first all of rank 1, then everything
    if (masked) std::fill(targets.begin(), targets.end(), -1);
  };
  test::run_ranks(2, [&](comm::World& world) {
    Replica replica(world, job);
    const StepResult some = replica.trainer.step();
    EXPECT_EQ(some.num_tokens, 4);
    EXPECT_TRUE(std::isfinite(some.loss));
    EXPECT_GT(some.grad_norm, 0);
    const std::vector<float> before = replica.all(false);
    const StepResult none = replica.trainer.step();
    EXPECT_EQ(none.num_tokens, 0);
    EXPECT_EQ(none.loss, 0);
    EXPECT_EQ(none.grad_norm, 0);
    EXPECT_FALSE(none.skipped);
    EXPECT_EQ(replica.all(false), before);
  });
}

TEST_P(TrainerOfStage, ClipsToTheGlobalNorm) {
  Job job = stage_job();
  job.clip_norm = 0.05;
  job.micro_batch = 2;
  test::run_ranks(2, [&](comm::World& world) {
    Replica replica(world, job);
    Oracle oracle;
    oracle.step(0, 8);
    ASSERT_GT(oracle.norm(), 0.05);
    const StepResult result = replica.trainer.step();
    EXPECT_NEAR(result.grad_norm, oracle.norm(), 3e-6);  // before clipping
    oracle.update(0.05 / oracle.norm());
    expect_near(replica.all(false), oracle.all(false), 1e-6);
  });
}

// Step 2 has a gradient that is not finite on one rank: no rank updates, and it is as if that step had not been.
TEST_P(TrainerOfStage, ANonFiniteGradientSkipsTheStepOnAllRanks) {
  const auto weights_after = [](bool poisoned) {
    Job job = stage_job();
    job.micro_batch = 2;
    job.optimizer = OptimizerOptions{};
    job.fill_row = [poisoned](int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
      // Without the poisoned step the later ones come one earlier.
      mixed_rows(poisoned || step == 0 ? step : step + 1, row, tokens, targets);
      if (poisoned && step == 1 && row == 3) targets[1] = kPoison;
    };
    std::vector<std::vector<float>> weights(2);
    test::run_ranks(2, [&](comm::World& world) {
      Replica replica(world, job);
      for (int64_t step = 0; step < (poisoned ? 4 : 3); ++step) {
        const StepResult result = replica.trainer.step();
        EXPECT_EQ(result.skipped, poisoned && step == 1);
        EXPECT_EQ(std::isfinite(result.grad_norm), !result.skipped);
        EXPECT_EQ(std::isfinite(result.loss), !result.skipped);
      }
      EXPECT_EQ(replica.trainer.num_skipped(), poisoned ? 1 : 0);
      EXPECT_EQ(replica.trainer.num_steps(), poisoned ? 4 : 3);
      weights[static_cast<size_t>(world.rank())] = replica.all(false);
    });
    EXPECT_EQ(weights[0], weights[1]);
    return weights[0];
  };
  EXPECT_EQ(weights_after(true), weights_after(false));
}

// Of start-up, evaluations and whoever looks at gradients, nothing is counted as the steps'; what was exposed in steps
// is what their results say, and within their time.
TEST_P(TrainerOfStage, StepsAreToldFromWhatIsOutside) {
  Job job = stage_job();
  comm::WorldOptions options;
  options.comm_log_bytes = size_t{1} << 20;
  test::run_ranks(
      2,
      [&](comm::World& world) {
        Replica replica(world, job);
        std::vector<StepResult> results;
        const auto look = [&](int64_t) {
          float x = 1;
          world.group().all_reduce({&x, 1, DType::F32}, {&x, 1, DType::F32}, ReduceOp::Sum, {.tag = "look"}).wait();
        };
        for (int i = 0; i < 3; ++i) {
          results.push_back(replica.trainer.step(look));
          replica.trainer.evaluate(mixed_rows, 8);
        }
        const auto calls_of = [&](comm::CommPhase phase, const std::string& tag) {
          int64_t calls = 0;
          for (const comm::CommRow& row : world.comm_table().rows(phase)) calls += row.tag == tag ? row.calls : 0;
          return calls;
        };
        using enum comm::CommPhase;
        for (const char* tag : {"dp.tokens", "dp.loss"}) {
          EXPECT_EQ(calls_of(Step, tag), 3) << tag;
          EXPECT_EQ(calls_of(Outside, tag), 0) << tag;
        }
        for (const char* tag : {"dp.params", "dp.eval", "look"}) {
          EXPECT_EQ(calls_of(Step, tag), 0) << tag;
          EXPECT_GT(calls_of(Outside, tag), 0) << tag;
        }
        double exposed = 0, exposed_of_results = 0;
        for (const comm::CommRow& row : world.comm_table().rows(Step)) exposed += row.exposed_seconds;
        for (const StepResult& result : results) {
          EXPECT_LE(result.exposed_seconds, result.seconds);
          exposed_of_results += result.exposed_seconds;
        }
        EXPECT_NEAR(exposed, exposed_of_results, 1e-9);
        std::map<std::string, std::set<int32_t>> steps;
        const comm::RankRecords records = world.comm_log()->records(world.rank());
        for (const comm::LoggedOperation& op : records.operations) steps[records.rows[op.row].tag].insert(op.step);
        EXPECT_EQ(steps["dp.tokens"], (std::set<int32_t>{1, 2, 3}));
        for (const char* tag : {"dp.params", "dp.eval", "look"}) EXPECT_EQ(steps[tag], std::set<int32_t>{0}) << tag;
        for (const comm::ComputeSpan& span : records.spans) {
          EXPECT_TRUE(span.step > 0 || span.kind == comm::ComputeSpan::Kind::Forward);
        }
      },
      options);
}

TEST_P(TrainerOfStage, EvaluatesRowsThatDoNotDivide) {
  for (int num_ranks : {1, 2, 3}) {
    for (int64_t num_rows : {1, 5, 7, 12, 13}) {
      Job job = stage_job();
      job.global_batch = 12;
      job.micro_batch = 2;
      test::run_ranks(num_ranks, [&](comm::World& world) {
        Replica replica(world, job);
        replica.trainer.step();
        const std::vector<float> before = replica.all(false);
        Oracle oracle;
        oracle.step(0, 12);
        oracle.update();
        EXPECT_NEAR(replica.trainer.evaluate(mixed_rows, num_rows), oracle.mean_loss(0, num_rows, false), 1e-6);
        EXPECT_EQ(replica.all(false), before);
        const StepResult result = replica.trainer.step();  // training goes on as if nothing had been
        EXPECT_NEAR(result.loss, oracle.step(1, 12), 1e-6);
      });
    }
  }
}

}  // namespace
}  // namespace sixfold::train
