// A rank of train_gpt in the making of a test: the command line's plan, on rows and weights of the test's own, and what
// it leaves behind.
#pragma once

#include <cmath>
#include <map>
#include <sstream>

#include "examples/train_gpt/plan.h"
#include "examples/train_gpt/predictions.h"
#include "models/gpt.h"
#include "models/sample.h"
#include "runtime/core/rng.h"
#include "runtime/parallel/init.h"
#include "runtime/parallel/stage_strategy.h"
#include "runtime/parallel/tp_gradients.h"
#include "tests/harness.h"

namespace sixfold::test {

/// What train_gpt would do with these options. Throws ConfigError as it does.
inline train_gpt::Plan plan_of(const std::string& options) {
  std::istringstream stream("train_gpt --quiet " + options);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return train_gpt::make_plan(*train_gpt::parse_options(static_cast<int>(argv.size()), argv.data(), false));
}

/// About a fifth of the targets masked.
inline void random_row(int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
  const auto draw = [&](uint64_t i) { return philox_hash(static_cast<uint64_t>(1000 * step + row), i); };
  for (size_t t = 0; t < tokens.size(); ++t) {
    tokens[t] = static_cast<int32_t>(draw(t) % train::kNumByteTokens);
    targets[t] = draw(100 + t) % 5 == 0 ? -1 : static_cast<int32_t>(draw(t + 1) % train::kNumByteTokens);
  }
}

class PlanRig {
 public:
  PlanRig(comm::World& ranks, const train_gpt::Plan& its_plan)
      : PlanRig(ranks, its_plan, {ranks.memory(), its_plan.num_threads}) {}
  /// `computes`: where, in place of the World's memory and the CPU.
  PlanRig(comm::World& ranks, const train_gpt::Plan& its_plan, const kernels::Context& computes)
      : world(ranks),
        plan(its_plan),
        context(computes),
        mesh(ranks.group(), plan.mesh),
        model(plan.model, parallel::TpGroup(&mesh.tp_group(), plan.tp), &mesh.sp_group()),
        stage(model.units(), mesh.coordinates().pp, plan.mesh.pp, plan.pipeline.virtual_stages),
        strategy(stage, context, mesh.pp_group(), mesh.data_group(), plan.strategy),
        optimizer(train::make_optimizer(plan.optimizer, strategy.state_elements(), context)),
        trainer({ranks, mesh.data_group(), tp_group(), model.units(), strategy, *optimizer, context,
                 plan.mesh.pp > 1 ? &mesh.pp_group() : nullptr},
                trainer_options(), random_row) {
    // Weights larger than the usual ones, so that attention is far from uniform.
    strategy.load_values([&](parallel::Parameter& p) {
      parallel::initialize(context, p, 3);
      if (p.init.std == 0) return;
      const Tensor floats = Tensor::of_host(p.value.shape(), DType::F32);
      floats.copy_from(kernels::floats_on_host(context, p.value));
      for (int64_t i = 0; i < floats.numel(); ++i) floats.data<float>()[i] *= 8;
      kernels::floats_from_host(context, floats, p.value);
    });
  }

  comm::Communicator* tp_group() { return plan.mesh.tp > 1 ? &mesh.tp_group() : nullptr; }
  train_gpt::Predictions predictions() { return train_gpt::predict(plan, mesh, stage); }
  /// Bytes that this rank has sent under a tag since the table was reset.
  double sent_bytes(const std::string& tag) const {
    double sum = 0;
    for (const comm::CommRow& row : world.comm_table().rows()) {
      if (row.tag == tag) sum += static_cast<double>(row.sent_bytes);
    }
    return sum;
  }

  using Values = std::map<std::string, std::vector<float>>;
  /// Three tokens drawn from the model; collective.
  std::vector<int32_t> sample() {
    models::SampleOptions options;
    options.num_tokens = 3;
    return models::sample(model, context, {'a', 'b'}, options, &trainer.pipeline());
  }

  /// Of every parameter of the model, whole; collective.
  Values gather(void (parallel::StageStrategy::*what)(const parallel::Parameter&, const Tensor&)) {
    Values values;
    for (const parallel::Parameter* p : model.parameters_by_name()) {
      const Tensor piece = Tensor::empty(p->local_shape(), DType::F32, context.memory, Category::Other);
      (strategy.*what)(*p, piece);
      const Tensor whole = parallel::assemble(*p, piece, tp_group(), context);
      values[p->name] = {whole.data<float>(), whole.data<float>() + whole.numel()};
    }
    return values;
  }

  comm::World& world;
  const train_gpt::Plan plan;
  kernels::Context context;
  parallel::Mesh mesh;
  models::Gpt model;
  parallel::StageUnits stage;
  parallel::StageStrategy strategy;
  std::unique_ptr<train::Optimizer> optimizer;
  train::Trainer trainer;

 private:
  train::TrainerOptions trainer_options() {
    train::TrainerOptions options = plan.trainer;
    options.share.dp_rank = mesh.coordinates().dp;
    options.sequence_part = mesh.coordinates().sp;
    return options;
  }
};

/// What a run leaves behind.
struct RunOutcome {
  PlanRig::Values gradients, weights;  // of step 1; at the end
  std::vector<double> losses, norms;
  double validation_loss = 0;
  std::vector<int32_t> sampled;
};

/// Trains for the plan's steps, then evaluates.
inline RunOutcome run_rig(PlanRig& rig) {
  RunOutcome outcome;
  for (int64_t step = 0; step < rig.plan.options.steps; ++step) {
    const train::StepResult result = rig.trainer.step([&](int64_t at) {
      if (at == 1) outcome.gradients = rig.gather(&parallel::StageStrategy::gather_gradient);
    });
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  outcome.validation_loss = rig.trainer.evaluate(random_row, 5);
  outcome.weights = rig.gather(&parallel::StageStrategy::gather_value);
  return outcome;
}

/// ||difference|| <= 1e-5 ||reference|| of every tensor. A key bias has no gradient but rounding noise.
inline void expect_same_values(const PlanRig::Values& values, const PlanRig::Values& reference, int64_t dim) {
  ASSERT_EQ(values.size(), reference.size());
  for (const auto& [name, expected] : reference) {
    const std::vector<float>& actual = values.at(name);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double d = static_cast<double>(actual[i]) - expected[i];
      const auto c = static_cast<int64_t>(i) % (3 * dim);
      if (name.find("c_attn.bias") != std::string::npos && c >= dim && c < 2 * dim) {
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

inline void expect_same_outcome(const RunOutcome& outcome, const RunOutcome& reference, int64_t dim) {
  expect_same_values(outcome.gradients, reference.gradients, dim);
  expect_same_values(outcome.weights, reference.weights, dim);
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  for (size_t i = 0; i < reference.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], reference.losses[i], 1e-5 * reference.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(outcome.norms[i], reference.norms[i], 1e-5 * reference.norms[i]) << "step " << i + 1;
  }
  EXPECT_NEAR(outcome.validation_loss, reference.validation_loss, 1e-5 * reference.validation_loss);
}

/// Bytes of the steps since the table of links was reset, and peaks of what a rank keeps, beside the formulas.
inline void expect_predicted(PlanRig& rig) {
  const train_gpt::Predictions predicted = rig.predictions();
  const auto steps = static_cast<double>(rig.plan.options.steps);
  const bool rings = rig.plan.world.algorithm == comm::Algorithm::Ring;
  for (const parallel::TagTraffic& row : predicted.traffic) {
    if (row.tag == "dp.grads" && !rings) continue;  // the formula of a ring; buckets here are small
    EXPECT_NEAR(rig.sent_bytes(row.tag) / steps, row.payload_bytes + row.padding_bytes, 1e-6) << row.tag;
  }
  const parallel::MemoryPrediction& memory = predicted.memory;
  for (const auto& [category, bytes] : {std::pair{Category::Parameters, std::optional(memory.parameters)},
                                        std::pair{Category::Gradients, std::optional(memory.gradients)},
                                        std::pair{Category::Optimizer, std::optional(memory.optimizer)},
                                        std::pair{Category::Activations, memory.activations}}) {
    if (!bytes) continue;  // no formula
    EXPECT_EQ(rig.context.memory.peak_bytes(category), static_cast<size_t>(*bytes)) << category_name(category);
  }
}

}  // namespace sixfold::test
