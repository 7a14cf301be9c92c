// Pipelines of threads against one rank with the same batch.
#include "runtime/parallel/pipeline.h"

#include <algorithm>
#include <thread>

#include "tests/gpt_fixture.h"
#include "tests/numbers.h"
#include "tests/pipeline_rig.h"
#include "tests/sanitized.h"

namespace sixfold::test {
namespace {

constexpr PipelineKind kGPipe = PipelineKind::GPipe, kOneFOneB = PipelineKind::OneFOneB,
                       kInterleaved = PipelineKind::Interleaved;

// ---- Right ---------------------------------------------------------------------------------------------------------

void expect_right(const PipelineJob& job, const PipelineOutcome& reference) {
  SCOPED_TRACE(job.name());
  const std::vector<PipelineOutcome> outcomes = run_job(job);
  expect_same_outcome(outcomes[0], reference);
  for (const PipelineOutcome& outcome : outcomes) {  // every rank is told the same
    EXPECT_EQ(outcome.losses, outcomes[0].losses);
    EXPECT_EQ(outcome.norms, outcomes[0].norms);
    EXPECT_EQ(outcome.validation_loss, outcomes[0].validation_loss);
    EXPECT_EQ(outcome.weights, outcomes[0].weights);
  }
}

TEST(Pipeline, EveryScheduleIsTheRunOfOneRank) {
  // Under a sanitizer, the two that reach every kind with every number of stages, and fewer than there are stages.
  const std::vector<int> counts = kSanitized ? std::vector<int>{3, 4} : std::vector<int>{1, 2, 3, 4, 5, 8};
  for (int m : counts) {
    PipelineJob job;
    job.num_micro_batches = m;
    job.layers = 9;  // no number of stages below divides it
    const PipelineOutcome reference = run_job(job.on_one_rank())[0];
    for (int pp : {2, 3, 4}) {
      job.pp = pp;
      for (PipelineKind kind : {kGPipe, kOneFOneB, kInterleaved}) {
        if (kind == kInterleaved && m % pp != 0) continue;  // refused, as pipeline_schedule_test has it
        job.kind = kind;
        job.virtual_stages = kind == kInterleaved ? 2 : 1;
        if (kind == kInterleaved && pp == 2) job.virtual_stages = 4;
        expect_right(job, reference);
      }
    }
  }
}

TEST(Pipeline, EveryStageOfZeroIsTheRunOfOneRank) {
  for (int zero : {0, 1, 2, 3}) {
    PipelineJob job;
    job.dp = 2;
    job.num_micro_batches = 4;
    job.strategy.zero = zero;
    const PipelineOutcome reference = run_job(job.on_one_rank())[0];
    job.pp = 2;
    expect_right(job, reference);
    job.kind = kInterleaved;
    job.virtual_stages = 2;
    job.strategy.deterministic = true;
    job.strategy.overlap = false;
    expect_right(job, reference);
  }
  PipelineJob job;
  job.dp = 2;
  job.num_micro_batches = 3;
  job.strategy.zero = 3;
  job.strategy.prefetch = 3;
  const PipelineOutcome reference = run_job(job.on_one_rank())[0];
  job.pp = 3;
  expect_right(job, reference);
  job.pp = 4;
  expect_right(job, reference);
}

// One stage of two chunks' worth of micro-batches is the list that a trainer without a pipeline runs.
TEST(Pipeline, OneStageRunsEveryList) {
  PipelineJob job;
  job.num_micro_batches = 3;
  const PipelineOutcome reference = run_job(job.on_one_rank())[0];
  expect_right(job, reference);
  job.kind = kGPipe;
  expect_right(job, reference);
}

// ---- Tied weights --------------------------------------------------------------------------------------------------

/// This rank's copy of the token table, whole.
std::vector<float> own_token_table(PipelineRig& rig) {
  parallel::Unit& unit = rig.units.stage() == 0 ? *rig.model.units().front() : *rig.model.units().back();
  rig.strategy.before_forward(unit, 0);
  const Tensor& value = rig.units.tied().at(0)->value;
  std::vector<float> copy(value.data<float>(), value.data<float>() + value.numel());
  rig.strategy.after_forward(unit, 0);
  return copy;
}

TEST(Pipeline, TiedWeightsAreBitEqualAfterTwentySteps) {
  for (int zero : {0, 1, 2, 3}) {
    for (int dp : {1, 3}) {
      if (dp == 1 && zero > 0) continue;  // nothing is sharded there
      PipelineJob job;
      job.pp = 2;
      job.dp = dp;
      job.num_micro_batches = 2;
      job.num_steps = 20;
      job.optimizer = train::OptimizerKind::AdamW;
      job.strategy.zero = zero;
      SCOPED_TRACE(job.name());
      std::vector<std::vector<float>> tables(static_cast<size_t>(job.world_size()));
      run_ranks(
          job.world_size(),
          [&](comm::World& world) {
            PipelineRig rig(world, job);
            for (int step = 0; step < job.num_steps; ++step) rig.trainer.step();
            tables[static_cast<size_t>(world.rank())] = own_token_table(rig);
          },
          {}, 30);
      for (const auto& table : tables) EXPECT_EQ(table, tables[0]);
      EXPECT_EQ(tables[0].size(), static_cast<size_t>(kRigVocab * kRigDim));
    }
  }
}

// ---- Micro-batches of different length -----------------------------------------------------------------------------

TEST(Pipeline, MicroBatchesMayDifferInLength) {
  PipelineJob job;
  job.layers = 4;
  job.dropout = 0;
  const std::vector<int64_t> lengths = {3, 6, 1, 4};
  std::vector<TokenBatch> rows;
  for (size_t i = 0; i < lengths.size(); ++i) rows.emplace_back(2, lengths[i], kRigVocab, 10 + i);

  for (const auto& [pp, kind, chunks] :
       {std::tuple{2, kOneFOneB, 1}, std::tuple{3, kGPipe, 1}, std::tuple{2, kInterleaved, 2}}) {
    job.pp = pp;
    job.kind = kind;
    job.virtual_stages = chunks;
    job.num_micro_batches = static_cast<int>(lengths.size());
    SCOPED_TRACE(job.name());
    run_ranks(pp, [&](comm::World& world) {
      PipelineRig rig(world, job);
      std::vector<TokenBatch> own = rows;
      std::vector<parallel::MicroBatch> batches;
      for (TokenBatch& batch : own) batches.push_back(batch.all());
      auto schedule = parallel::pipeline_schedule({kind, pp, job.num_micro_batches, chunks});
      if (kind == kGPipe) {  // a list of another shape: gradients wait until all have been worked out
        for (auto& actions : schedule) {
          std::stable_partition(actions.begin(), actions.end(), [](const parallel::Action& action) {
            return action.kind != parallel::Action::Kind::SendGradient;
          });
        }
      }
      PipelineRig::Values gradients;
      double loss = 0;
      const Tensor scale = number(world.memory(), 0.01f);
      for (int step = 0; step < 2; ++step) {  // shapes are announced in the first, and known in the second
        rig.strategy.begin_step(job.num_micro_batches);
        const parallel::PipelineRun run =
            rig.trainer.pipeline().run(schedule[static_cast<size_t>(world.rank())], batches, [&] { return scale; });
        rig.strategy.finish_gradients();
        loss = 0;
        for (int64_t i = 0; i < run.losses.numel(); ++i) loss += static_cast<double>(run.losses.data<float>()[i]);
        EXPECT_LE(run.compute_seconds, run.seconds);
      }
      gradients = rig.gather(&parallel::StageStrategy::gather_gradient);

      PlacedGpt oracle(PipelineRig::config(job));
      for (parallel::Parameter* p : oracle.parameters) {
        parallel::initialize(oracle.memory, *p, 3);
        for (int64_t i = 0; p->init.std > 0 && i < p->value.numel(); ++i) p->value.data<float>()[i] *= 8;
      }
      double expected_loss = 0;
      for (const parallel::MicroBatch& batch : batches) expected_loss += oracle.forward_backward(batch, 0.01);
      PipelineRig::Values expected;
      for (const parallel::Parameter* p : oracle.parameters) {
        expected[p->name] = {p->grad.data<float>(), p->grad.data<float>() + p->grad.numel()};
      }
      expect_same_values(gradients, expected);
      EXPECT_NEAR(loss, world.rank() == pp - 1 ? expected_loss : 0, 1e-5 * expected_loss);
    });
  }
}

// ---- Bytes ---------------------------------------------------------------------------------------------------------

/// Bytes that this rank has sent under a tag.
uint64_t sent_bytes(comm::World& world, const std::string& tag) {
  uint64_t sum = 0;
  for (const comm::CommRow& row : world.comm_table().rows()) {
    if (row.tag == tag) sum += row.sent_bytes;
  }
  return sum;
}

// B T C floats per micro-batch and boundary, each way; with chunks, boundaries go round the stages.
TEST(Pipeline, SendsAnActivationAndAGradientPerMicroBatchAndBoundary) {
  for (const auto& [pp, kind, chunks] :
       {std::tuple{2, kOneFOneB, 1}, std::tuple{4, kGPipe, 1}, std::tuple{4, kOneFOneB, 1},
        std::tuple{2, kInterleaved, 3}, std::tuple{4, kInterleaved, 2}}) {
    PipelineJob job;
    job.pp = pp;
    job.kind = kind;
    job.virtual_stages = chunks;
    job.layers = 8;
    job.num_micro_batches = 4;
    job.micro_batch = 3;
    job.num_steps = 3;
    SCOPED_TRACE(job.name());
    run_ranks(pp, [&](comm::World& world) {
      PipelineRig rig(world, job);
      for (int step = 0; step < job.num_steps; ++step) rig.trainer.step();
      const uint64_t once = 3 * kRigSeqLen * kRigDim * 4 * 4 * 3;  // B T C floats, micro-batches, steps
      const bool first = world.rank() == 0, last = world.rank() == pp - 1;
      const auto num_chunks = static_cast<uint64_t>(chunks);
      EXPECT_EQ(sent_bytes(world, "pp.activation"), once * (num_chunks - (last ? 1 : 0)));
      EXPECT_EQ(sent_bytes(world, "pp.gradient"), once * (num_chunks - (first ? 1 : 0)));
      EXPECT_EQ(sent_bytes(world, "pp.shape"), 72 * (num_chunks - (last ? 1 : 0)));
      const uint64_t table = kRigVocab * kRigDim * 4;
      EXPECT_EQ(sent_bytes(world, "pp.tied"), first || last ? table * 3 : 0);
    });
  }
}

// ---- Always finishes -----------------------------------------------------------------------------------------------

/// Hands on a tensor of a given size after a random sleep. Each adds 1 to what the one before it has made, and 1 to the
/// gradient of its only parameter.
class Relay final : public parallel::Unit {
 public:
  Relay(int64_t index, int64_t in, int64_t out) : name_("relay." + std::to_string(index)), in_(in), out_(out) {
    parameter_.name = name_ + ".w";
    parameter_.full_shape = {1};
  }
  const std::string& name() const override { return name_; }
  std::vector<parallel::Parameter*> parameters() override { return {&parameter_}; }
  Tensor forward(kernels::Context& context, const Tensor& x, const parallel::MicroBatch&, parallel::Saved&) override {
    return next(context, x, out_);
  }
  Tensor backward_input(kernels::Context& context, const Tensor& dy, const parallel::MicroBatch&,
                        parallel::Saved&) override {
    return next(context, dy, in_);
  }
  void backward_weights(kernels::Context&, const parallel::MicroBatch&, parallel::Saved&,
                        const parallel::GradientReady& ready) override {
    parameter_.grad.data<float>()[0] += 1;
    ready(parameter_);
  }

 private:
  Tensor next(kernels::Context& context, const Tensor& before, int64_t count) {
    const uint64_t word = philox_hash(std::hash<std::string>{}(name_), ++num_sleeps_);
    std::this_thread::sleep_for(std::chrono::microseconds(word % 1000));
    const Tensor after = Tensor::empty({count}, DType::F32, context.memory, Category::Activations);
    const float value = before.defined() ? before.data<float>()[before.numel() - 1] : 0;
    after.data<float>()[0] = after.data<float>()[count - 1] = value + 1;
    return after;
  }

  std::string name_;
  int64_t in_, out_;
  uint64_t num_sleeps_ = 0;
  parallel::Parameter parameter_;
};

TEST(Pipeline, FinishesWithMessagesOfAnySizeAndStagesThatDawdle) {
  constexpr int64_t kLent = kSanitized ? 4 << 20 : 64 << 20;
  for (const int64_t bytes : {int64_t{4}, int64_t{64} << 10, kLent}) {
    for (int pp : {2, 3, 4}) {
      for (PipelineKind kind : {kGPipe, kOneFOneB, kInterleaved}) {
        const bool large = bytes > (1 << 20);
        if (large && (pp == 3 || (pp == 4 && kind != kOneFOneB))) continue;  // a GiB is enough
        const int m = large ? 2 : 2 * pp;
        const int chunks = kind == kInterleaved ? 2 : 1;
        const parallel::PipelineShape shape{kind, pp, m, chunks};
        comm::WorldOptions options;
        options.links.num_slots = 2;
        options.links.min_lend_bytes = kLent / 2;
        run_ranks(
            pp,
            [&](comm::World& world) {
              const int num_units = pp * chunks + 2;
              std::vector<std::unique_ptr<Relay>> owned;
              parallel::UnitList model;
              for (int i = 0; i < num_units; ++i) {  // the last one makes the loss: one number
                owned.push_back(std::make_unique<Relay>(i, bytes / 4, i + 1 == num_units ? 1 : bytes / 4));
                model.push_back(owned.back().get());
              }
              kernels::Context context{world.memory(), 1};
              parallel::StageUnits units(model, world.rank(), pp, chunks);
              comm::Communicator alone = world.group().split(world.rank(), 0);
              parallel::StageStrategy strategy(units, world.memory(), world.group(), alone, {});
              parallel::Pipeline pipeline(
                  {&world.group(), units.chunks(), strategy, context, [&] { world.progress(); }});
              int32_t token = 0;
              parallel::MicroBatch batch;
              batch.tokens = batch.targets = Tensor::view(&token, {1}, DType::I32);
              const std::vector<parallel::MicroBatch> batches(static_cast<size_t>(m), batch);
              strategy.begin_step(m);
              const auto schedule = parallel::pipeline_schedule(shape);
              const Tensor scale = number(world.memory(), 1);
              const Tensor losses =
                  pipeline.run(schedule[static_cast<size_t>(world.rank())], batches, [&] { return scale; }).losses;
              EXPECT_EQ(losses.numel(), pipeline.has_loss() ? m : 0);
              for (int64_t i = 0; i < losses.numel(); ++i) EXPECT_EQ(losses.data<float>()[i], num_units);
              strategy.finish_gradients();
              for (const parallel::UnitList& chunk : units.chunks()) {
                for (parallel::Unit* unit : chunk) EXPECT_EQ(unit->parameters()[0]->grad.data<float>()[0], m);
              }
            },
            options, 60);
      }
    }
  }
}

}  // namespace
}  // namespace sixfold::test
