// A step of the trainer, against the same step in double on one rank.
#include <cmath>

#include "tests/trainer_rig.h"

namespace sixfold::test {
namespace {

using train::OptimizerOptions;
using train::StepResult;

INSTANTIATE_TEST_SUITE_P(Zero, TrainerOfStage, testing::Values(0, 1, 2, 3));

// Micro-batches x rows of 1x8, 2x4, 4x2 and 8x1 on one rank, and what is left of them on two and four.
TEST_P(TrainerOfStage, EveryCutOfTheBatchIsTheSameStep) {
  for (int num_ranks : {1, 2, 4}) {
    for (int64_t micro_batch = 8 / num_ranks; micro_batch >= 1; micro_batch /= 2) {
      for (const bool overlap : {true, false}) {
        SCOPED_TRACE(std::to_string(num_ranks) + " ranks, micro-batches of " + std::to_string(micro_batch));
        TrainerJob job = stage_job();
        job.micro_batch = micro_batch;
        job.strategy.bucket_bytes = 0;
        job.strategy.overlap = overlap;
        run_ranks(num_ranks, [&](comm::World& world) {
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
  TrainerJob job = stage_job();
  job.global_batch = 2;
  job.fill_row = [](int64_t, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = static_cast<int32_t>(row);
      targets[t] = row == 0 || t == 1 ? 0 : -1;
    }
  };
  run_ranks(2, [&](comm::World& world) {
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
  TrainerJob job = stage_job();
  job.global_batch = 4;
  job.fill_row = [](int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
    mixed_rows(step, 1, tokens, targets);
    const bool masked = step == 0 ? row % 2 == 1 : true;  // first all of rank 1, then everything
    if (masked) std::fill(targets.begin(), targets.end(), -1);
  };
  run_ranks(2, [&](comm::World& world) {
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
  TrainerJob job = stage_job();
  job.clip_norm = 0.05;
  job.micro_batch = 2;
  run_ranks(2, [&](comm::World& world) {
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
    TrainerJob job = stage_job();
    job.micro_batch = 2;
    job.optimizer = OptimizerOptions{};
    job.fill_row = [poisoned](int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
      // Without the poisoned step the later ones come one earlier.
      mixed_rows(poisoned || step == 0 ? step : step + 1, row, tokens, targets);
      if (poisoned && step == 1 && row == 3) targets[1] = kPoison;
    };
    std::vector<std::vector<float>> weights(2);
    run_ranks(2, [&](comm::World& world) {
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

}  // namespace
}  // namespace sixfold::test
