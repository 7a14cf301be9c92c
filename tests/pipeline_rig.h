// One rank of a small GPT in training, on any pp x dp ranks, and what tests want to know of the run.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/gpt.h"
#include "runtime/core/rng.h"
#include "runtime/parallel/init.h"
#include "runtime/parallel/mesh.h"
#include "runtime/parallel/stage_strategy.h"
#include "runtime/train/trainer.h"
#include "tests/harness.h"

namespace sixfold::test {

using parallel::PipelineKind;

/// Layout and work of a run. The batch is num_micro_batches x micro_batch rows a data-parallel rank.
struct PipelineJob {
  int pp = 1;
  int dp = 1;
  PipelineKind kind = PipelineKind::OneFOneB;
  int virtual_stages = 1;
  int num_micro_batches = 1;
  int64_t micro_batch = 1;
  int64_t layers = 4;
  int num_steps = 5;
  double clip_norm = 0.5;
  float dropout = 0.1f;
  train::OptimizerKind optimizer = train::OptimizerKind::Sgd;
  parallel::StrategyOptions strategy;

  int world_size() const { return pp * dp; }
  std::string name() const {
    return "pp " + std::to_string(pp) + " dp " + std::to_string(dp) + " " + parallel::pipeline_kind_name(kind) + " V " +
           std::to_string(virtual_stages) + " m " + std::to_string(num_micro_batches) + " zero " +
           std::to_string(strategy.zero);
  }
  /// The same batch on one rank, in one micro-batch.
  PipelineJob on_one_rank() const {
    PipelineJob job = *this;
    job.pp = job.dp = job.virtual_stages = job.num_micro_batches = 1;
    job.kind = PipelineKind::OneFOneB;
    job.micro_batch = micro_batch * num_micro_batches * dp;
    job.strategy = {};
    return job;
  }
};

inline constexpr int64_t kRigDim = 8, kRigSeqLen = 6, kRigVocab = 32;

/// About a fifth of the targets masked.
inline void rig_row(int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
  const auto draw = [&](uint64_t i) { return philox_hash(static_cast<uint64_t>(1000 * step + row), i); };
  for (size_t t = 0; t < tokens.size(); ++t) {
    tokens[t] = static_cast<int32_t>(draw(t) % kRigVocab);
    targets[t] = draw(100 + t) % 5 == 0 ? -1 : static_cast<int32_t>(draw(t + 1) % kRigVocab);
  }
}

struct PipelineRig {
  const PipelineJob job;
  comm::World& world;
  kernels::Context context;
  parallel::Mesh mesh;
  models::Gpt model;
  parallel::StageUnits units;
  parallel::StageStrategy strategy;
  std::unique_ptr<train::Optimizer> optimizer;
  train::Trainer trainer;

  PipelineRig(comm::World& world_, const PipelineJob& job_)
      : job(job_),
        world(world_),
        context{world.memory(), 1},
        mesh(world.group(), {job.pp, job.dp, 1, 1}),
        model(config(job)),
        units(model.units(), mesh.coordinates().pp, job.pp, job.virtual_stages),
        strategy(units, world.memory(), mesh.pp_group(), mesh.dp_group(), job.strategy),
        optimizer(train::make_optimizer(optimizer_options(job), strategy.state_elements(), world.memory())),
        trainer({world, mesh.dp_group(), nullptr, model.units(), strategy, *optimizer, context, &mesh.pp_group()},
                options(job, mesh), rig_row) {
    // Weights larger than the usual ones, so that attention is far from uniform.
    strategy.load_values([&](parallel::Parameter& p) {
      parallel::initialize(context, p, 3);
      for (int64_t i = 0; p.init.std > 0 && i < p.value.numel(); ++i) p.value.data<float>()[i] *= 8;
    });
  }

  static models::GptConfig config(const PipelineJob& job) {
    models::GptConfig config;
    config.num_layers = job.layers;
    config.num_heads = 2;
    config.dim = kRigDim;
    config.seq_len = kRigSeqLen;
    config.vocab_size = kRigVocab;
    config.dropout = job.dropout;
    return config;
  }
  static train::OptimizerOptions optimizer_options(const PipelineJob& job) {
    train::OptimizerOptions options;
    options.kind = job.optimizer;
    return options;
  }
  static train::TrainerOptions options(const PipelineJob& job, const parallel::Mesh& mesh) {
    train::TrainerOptions options;
    options.seq_len = kRigSeqLen;
    options.share = {job.micro_batch * job.num_micro_batches * job.dp, job.micro_batch, mesh.coordinates().dp, job.dp};
    options.lr = {0.05f, 0.05f, 0, 100};
    options.clip_norm = job.clip_norm;
    options.check_replicas_every = 2;
    options.pp_schedule = job.kind;
    options.virtual_stages = job.virtual_stages;
    return options;
  }

  using Values = std::map<std::string, std::vector<float>>;
  /// Of every parameter of the model; collective.
  Values gather(void (parallel::StageStrategy::*what)(const parallel::Parameter&, const Tensor&)) {
    Values values;
    for (const parallel::Parameter* p : model.parameters_by_name()) {
      const Tensor whole = Tensor::empty(p->full_shape, DType::F32, world.memory(), Category::Other);
      (strategy.*what)(*p, whole);
      values[p->name] = {whole.data<float>(), whole.data<float>() + whole.numel()};
    }
    return values;
  }
};

/// What a run leaves behind.
struct PipelineOutcome {
  PipelineRig::Values gradients, weights;  // of step 1; at the end
  std::vector<double> losses, norms;
  double validation_loss = 0;
};

inline PipelineOutcome run_rig(PipelineRig& rig) {
  PipelineOutcome outcome;
  for (int step = 0; step < rig.job.num_steps; ++step) {
    const train::StepResult result = rig.trainer.step([&](int64_t at) {
      if (at == 1) outcome.gradients = rig.gather(&parallel::StageStrategy::gather_gradient);
    });
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  outcome.validation_loss = rig.trainer.evaluate(rig_row, 7);
  outcome.weights = rig.gather(&parallel::StageStrategy::gather_value);
  return outcome;
}

/// By rank.
inline std::vector<PipelineOutcome> run_job(const PipelineJob& job, comm::WorldOptions options = {}) {
  std::vector<PipelineOutcome> outcomes(static_cast<size_t>(job.world_size()));
  options.links = {2, 512};
  run_ranks(
      job.world_size(),
      [&](comm::World& world) {
        PipelineRig rig(world, job);
        outcomes[static_cast<size_t>(world.rank())] = run_rig(rig);
      },
      options, 30);
  return outcomes;
}

/// ||difference|| <= 1e-5 ||reference|| of every tensor. A key bias has no gradient but rounding noise.
inline void expect_same_values(const PipelineRig::Values& values, const PipelineRig::Values& reference) {
  ASSERT_EQ(values.size(), reference.size());
  for (const auto& [name, expected] : reference) {
    const std::vector<float>& actual = values.at(name);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double d = static_cast<double>(actual[i]) - expected[i];
      const size_t c = i % (3 * kRigDim);
      if (name.find("c_attn.bias") != std::string::npos && c >= kRigDim && c < 2 * kRigDim) {
        EXPECT_LE(std::abs(d), 1e-7) << name << " " << i;
        continue;
      }
      difference += d * d;
      norm += static_cast<double>(expected[i]) * expected[i];
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << name;
  }
}

inline void expect_same_outcome(const PipelineOutcome& outcome, const PipelineOutcome& reference) {
  expect_same_values(outcome.gradients, reference.gradients);
  expect_same_values(outcome.weights, reference.weights);
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  for (size_t i = 0; i < reference.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], reference.losses[i], 1e-5 * reference.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(outcome.norms[i], reference.norms[i], 1e-5 * reference.norms[i]) << "step " << i + 1;
  }
  EXPECT_NEAR(outcome.validation_loss, reference.validation_loss, 1e-5 * reference.validation_loss);
}

}  // namespace sixfold::test
