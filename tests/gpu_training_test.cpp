// Training on a GPU without one: every strategy with the kernels of kernels/cuda, compiled for the CPU, in memory that
// only they may look at (emulated_gpu.h), against training on the CPU. Ranks are threads.
#include <array>

#include "tests/emulated_gpu.h"
#include "tests/plan_rig.h"
#include "tests/sanitized.h"

namespace sixfold::test {
namespace {

const std::string kModel =
    "--layers 2 --heads 4 --dim 32 --seq-len 8 --dropout 0.1 --global-batch 8 --optimizer sgd --lr 0.05 --warmup 0 "
    "--clip 0.5 --threads 1 --steps " +
    std::string(kSanitized ? "2" : "3");

RunOutcome run_on_cpu(const std::string& options) {
  RunOutcome outcome;
  run_ranks(1, [&](comm::World& world) {
    PlanRig rig(world, plan_of(options + " --ranks 1"));
    outcome = run_rig(rig);
    outcome.sampled = rig.sample();
  });
  return outcome;
}

using Body = std::function<void(PlanRig&, const EmulatedGpu&)>;

/// Calls body(rig, gpu) on every rank of a world of emulated GPUs: the plan's steps, which send and keep what the
/// formulas say.
void run_on_gpus(const std::string& options, DType dtype, const Body& body) {
  train_gpt::Plan plan = plan_of(options);
  plan.device = {DeviceType::Cuda, 0};
  plan.dtype = plan.strategy.param_dtype = dtype;
  run_ranks(
      plan.world.num_ranks,
      [&](comm::World& world) {
        SCOPED_TRACE(options + ", rank " + std::to_string(world.rank()));
        EmulatedGpu gpu;
        PlanRig rig(world, plan, gpu.context(dtype));
        world.comm_table().reset();
        body(rig, gpu);
        rig.strategy.settle();
        expect_predicted(rig);
        EXPECT_EQ(gpu.memory.live_bytes(Category::Activations), 0U);  // nothing of a step outlives it
      },
      plan.world, 60);
}

const std::vector<std::string> kLayouts = {
    "--ranks 1",
    "--ranks 2 --micro-batch 2",
    "--ranks 2 --zero 1 --bucket-mb 0.01",
    "--ranks 2 --zero 2 --micro-batch 1",
    "--ranks 2 --zero 3 --prefetch 2 --recompute",
    "--ranks 4 --zero 3 --hsdp --topology 2x2",
    "--ranks 2 --tp 2",
    "--ranks 4 --tp 2 --sequence-parallel megatron --zero 1",
    "--ranks 2 --sp 2",
    "--ranks 2 --pp 2 --micro-batch 2",
    "--ranks 4 --pp 2 --tp 2 --pp-schedule gpipe --micro-batch 2",
    "--ranks 2 --deterministic --micro-batch 2",
};

/// All of them; one rank and every fourth where a sanitizer watches.
std::vector<std::string> layouts() {
  std::vector<std::string> chosen;
  for (size_t i = 0; i < kLayouts.size(); i += kSanitized ? 4 : 1) chosen.push_back(kLayouts[i]);
  return chosen;
}

TEST(GpuTraining, InF32EveryStrategyIsTheRunOfOneRankOnTheCpu) {
  const RunOutcome reference = run_on_cpu(kModel);
  for (const std::string& layout : layouts()) {
    run_on_gpus(kModel + " " + layout, DType::F32, [&](PlanRig& rig, const EmulatedGpu&) {
      const RunOutcome outcome = run_rig(rig);
      expect_same_outcome(outcome, reference, 32);
      EXPECT_EQ(rig.sample(), reference.sampled);
    });
    if (::testing::Test::HasFailure()) break;
  }
}

/// ||difference|| / ||reference|| over all tensors.
double distance(const PlanRig::Values& values, const PlanRig::Values& reference) {
  double difference = 0, norm = 0;
  for (const auto& [name, expected] : reference) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const double d = static_cast<double>(values.at(name)[i]) - expected[i];
      difference += d * d;
      norm += static_cast<double>(expected[i]) * expected[i];
    }
  }
  return std::sqrt(difference / norm);
}

// bf16 keeps 8 bits: a rounding is off by up to 2^-9 of the value, and a gradient has been through a few tens of them.
// Weights start rounded, so they are compared with those of the run itself on one rank.
TEST(GpuTraining, InBf16EveryStrategyIsNearTheRunInF32) {
  const RunOutcome reference = run_on_cpu(kModel);
  RunOutcome alone;
  for (const std::string& layout : layouts()) {
    run_on_gpus(kModel + " " + layout, DType::BF16, [&](PlanRig& rig, const EmulatedGpu&) {
      const RunOutcome outcome = run_rig(rig);
      if (rig.world.size() == 1) alone = outcome;
      for (size_t step = 0; step < reference.losses.size(); ++step) {
        EXPECT_NEAR(outcome.losses[step], reference.losses[step], 0.01 * reference.losses[step]) << step;
        EXPECT_NEAR(outcome.norms[step], reference.norms[step], 0.03 * reference.norms[step]) << step;
      }
      EXPECT_LE(distance(outcome.gradients, reference.gradients), 0.03);
      EXPECT_GT(distance(outcome.gradients, reference.gradients), 1e-4);  // they were rounded
      EXPECT_LE(distance(outcome.weights, alone.weights), 0.002);
    });
    if (::testing::Test::HasFailure()) break;
  }
}

// What the layouts above leave open: rings, gradients that travel as bf16, and AdamW, with 12 bytes an element.
TEST(GpuTraining, Bf16IsPredictedForEveryStageWithAdamW) {
  const std::string options =
      "--layers 2 --heads 4 --dim 32 --seq-len 8 --global-batch 8 --steps 2 --threads 1 --ranks 4 --micro-batch 1 "
      "--algorithm ring --optimizer adamw";
  for (const std::string zero : {"0", "1", "2", "3"}) {
    for (const std::string grad_dtype : {"f32", "bf16"}) {
      if (kSanitized && grad_dtype == "f32") continue;  // those of the layouts above travel as f32
      run_on_gpus(options + " --zero " + zero + " --grad-dtype " + grad_dtype, DType::BF16,
                  [&](PlanRig& rig, const EmulatedGpu&) {
                    for (int step = 0; step < 2; ++step) rig.trainer.step();
                    const int64_t updated = rig.strategy.state_elements();
                    EXPECT_EQ(rig.context.memory.peak_bytes(Category::Optimizer), static_cast<size_t>(12 * updated));
                  });
    }
  }
}

// Models so shaped that each of the moments of models/predict.h is the largest somewhere.
TEST(GpuTraining, EveryMomentOfABackwardIsPredicted) {
  if (kSanitized) GTEST_SKIP() << "nothing that the others do not reach";
  const std::string wide = "--dim 64 --global-batch 4 ", narrow = "--dim 16 --global-batch 8 ";
  for (const std::string& model :
       {wide + "--seq-len 16 ", wide + "--seq-len 32 --micro-batch 1 ", narrow + "--seq-len 16 "}) {
    for (const std::string kept : {"", "--no-overlap ", "--dropout 0.1 --recompute "}) {
      for (const std::string cut : {"--ranks 1", "--ranks 4 --tp 4", "--ranks 4 --tp 4 --sequence-parallel megatron",
                                    "--ranks 4 --sp 4", "--ranks 4 --pp 2 --tp 2 --sequence-parallel megatron"}) {
        run_on_gpus("--layers 2 --heads 8 --steps 1 --threads 1 " + model + kept + cut, DType::BF16,
                    [](PlanRig& rig, const EmulatedGpu&) { rig.trainer.step(); });
      }
    }
  }
}

// A step that has been warmed up for waits for the GPU once, when its numbers are read. Warming up changes no bit.
TEST(GpuTraining, WarmedUpAStepWaitsOnceAndIsTheSame) {
  const std::string model =
      "--layers 2 --heads 4 --dim 32 --seq-len 8 --dropout 0.1 --global-batch 8 --clip 0.5 --steps 2 --threads 1 ";
  for (size_t i = 0; i < kLayouts.size(); i += kSanitized ? 7 : 2) {
    const std::string& layout = kLayouts[i];
    std::vector<std::array<double, 2>> cold, warm;
    PlanRig::Values cold_weights, warm_weights;
    const auto run = [&](bool warm_up, auto& numbers, PlanRig::Values& weights) {
      run_on_gpus(model + layout, DType::BF16, [&](PlanRig& rig, const EmulatedGpu& gpu) {
        if (warm_up) {
          rig.trainer.warm_up();
          rig.world.comm_table().reset();
        }
        for (int step = 0; step < 2; ++step) {
          const int before = gpu.queue.num_waits();
          const train::StepResult result = rig.trainer.step();
          if (warm_up || step > 0) {
            EXPECT_EQ(gpu.queue.num_waits(), before + 1) << "step " << step;
          }
          if (rig.world.rank() == 0) numbers.push_back({result.loss, result.grad_norm});
          EXPECT_FALSE(result.skipped);
        }
        EXPECT_EQ(rig.trainer.num_steps(), 2);
        EXPECT_EQ(rig.trainer.num_skipped(), 0);
        const PlanRig::Values end = rig.gather(&parallel::StageStrategy::gather_value);
        if (rig.world.rank() == 0) weights = end;
      });
    };
    run(false, cold, cold_weights);
    run(true, warm, warm_weights);
    EXPECT_EQ(warm, cold) << layout;
    EXPECT_EQ(warm_weights, cold_weights) << layout;
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(GpuTraining, ActivationsHaveNoFormulaWhereAttentionKeepsMatricesOfScores) {
  for (const int channels : {128, 136}) {
    run_on_gpus("--layers 1 --heads 1 --dim " + std::to_string(channels) +
                    " --seq-len 4 --global-batch 2 --steps 1 --threads 1 --ranks 1",
                DType::BF16, [&](PlanRig& rig, const EmulatedGpu&) {
                  rig.trainer.step();
                  EXPECT_EQ(rig.predictions().memory.activations.has_value(), channels == 128);
                });
  }
}

// Updates below 2^-9 of a weight are lost in bf16 and add up in the f32 master weights.
TEST(GpuTraining, SmallUpdatesAddUpInMasterWeights) {
  const std::string options =
      "--layers 1 --heads 1 --dim 8 --seq-len 4 --global-batch 2 --optimizer sgd --lr 0.0001 --min-lr 0.0001 --warmup "
      "0 "
      "--clip 0 --threads 1 --steps 60 --ranks 1";
  PlanRig::Values start, end, moved;
  train_gpt::Plan plan = plan_of(options);
  run_ranks(1, [&](comm::World& world) {
    PlanRig rig(world, plan);
    start = rig.gather(&parallel::StageStrategy::gather_value);
    moved = run_rig(rig).weights;
  });
  run_on_gpus(options, DType::BF16, [&](PlanRig& rig, const EmulatedGpu&) { end = run_rig(rig).weights; });
  // A table whose gradients are far from zero: some of what f32 moved by more than a rounding, bf16 moved as well.
  int num_moved = 0;
  for (const auto& [name, value] : moved) {
    for (size_t i = 0; i < value.size(); ++i) {
      const float step = value[i] - start.at(name)[i], rounding = std::abs(start.at(name)[i]) * 0x1p-8f;
      if (std::abs(start.at(name)[i]) < 1e-3f || std::abs(step) < 3 * rounding) continue;
      ++num_moved;
      EXPECT_NEAR(end.at(name)[i], value[i], 2 * rounding + 0.1f * std::abs(step)) << name << " " << i;
    }
  }
  EXPECT_GT(num_moved, 5);
}

}  // namespace
}  // namespace sixfold::test
