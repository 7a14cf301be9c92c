// Weights, optimizer state and norm of every strategy on the toy model, with frozen and unused parameters.
#include <cmath>

#include "runtime/parallel/check_replicas.h"
#include "runtime/train/gradient_norm.h"
#include "tests/gradient_norm.h"
#include "tests/toy_model.h"

namespace sixfold::parallel {
namespace {

// ---- Steps -------------------------------------------------------------------------------------------------------

// 16 rows in all, 8 a rank, cut into micro-batches in every way. Row r pulls every weight towards a target of its own:
// the loss is the mean over rows of (w - target)^2 / 2.
TEST(StrategyWeights, MicroBatchesTimesRowsDoNotMatter) {
  const auto target = [](int row, int64_t element) { return std::sin(static_cast<double>(row * 31 + element)); };
  constexpr double kStart = 2, kLr = 0.3;
  for (const StrategyOptions& options : every_strategy(false, {1024, true, false})) {
    for (int num_micro_batches : {1, 2, 4, 8}) {
      SCOPED_TRACE(strategy_name(options) + ", micro-batches: " + std::to_string(num_micro_batches));
      test::run_ranks(2, [&](comm::World& world) {
        ToyModel model(world.rank());
        const int rows = 8 / num_micro_batches;
        model.gradient = [&](const Parameter& p, int64_t i, int m) {
          float sum = 0;
          for (int k = m * rows; k < (m + 1) * rows; ++k) {
            sum += (p.value.data<float>()[i] - static_cast<float>(target(2 * k + world.rank(), i))) / 16;
          }
          return sum;
        };
        const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
        strategy->load_values([](Parameter& p) { std::fill_n(p.value.data<float>(), p.value.numel(), float{kStart}); });
        kernels::Context context{*model.memory};
        for (int step = 0; step < 5; ++step) {
          strategy->begin_step(num_micro_batches);
          for (int m = 0; m < num_micro_batches; ++m) run_backward(model, *strategy, m);
          for (const UpdateSegment& s : strategy->finish_gradients()) {
            kernels::sgd_update(context, float{kLr}, 0, {}, s.grad, s.value);
          }
          strategy->after_step();
          const std::vector<float> values = gathered_values(model, *strategy);
          const std::vector<float> grads = gathered_gradients(model, *strategy);
          size_t at = 0;
          for (int64_t count : kToyParameters) {
            for (int64_t i = 0; i < count; ++i, ++at) {
              double mean = 0;
              for (int row = 0; row < 16; ++row) mean += target(row, i) / 16;
              const double before = mean + (kStart - mean) * std::pow(1 - kLr, step);
              ASSERT_NEAR(grads[at], before - mean, 2e-6);
              ASSERT_NEAR(values[at], mean + (kStart - mean) * std::pow(1 - kLr, step + 1), 2e-6);
            }
          }
        }
        check_replicas(model.units, *strategy, world.group(), nullptr, *model.memory, 5);
      });
    }
  }
}

/// One step of the toy model with the given gradient, and AdamW on the strategy's segments with moments of its own.
struct Adam {
  Tensor m, v;
  int64_t step = 0;

  Adam(const Strategy& strategy, Memory& memory)
      : m(Tensor::zeros({strategy.state_elements()}, DType::F32, memory, Category::Optimizer)),
        v(Tensor::zeros({strategy.state_elements()}, DType::F32, memory, Category::Optimizer)) {}
  void update(kernels::Context& context, const std::vector<UpdateSegment>& segments) {
    ++step;
    for (const UpdateSegment& s : segments) {
      const int64_t n = s.value.numel();
      kernels::adamw_update(context, {.lr = 0.1f, .weight_decay = s.decay ? 0.1f : 0.0f, .step = step}, {}, s.grad,
                            s.value, m.slice(s.state_offset, {n}), v.slice(s.state_offset, {n}));
    }
  }
};

// Weights, moments and the norm of ten steps of AdamW with gradients that differ by element, bit for bit; each element
// of the parameters is in one shard's state, padding in none.
TEST(StrategyWeights, ShardedStateIsTheWholeState) {
  for (int n : {1, 2, 3, 4}) {
    std::vector<std::vector<float>> ddp;
    double ddp_norm = 0;
    for (const StrategyOptions& options : every_strategy(false, {1024, true, true})) {
      SCOPED_TRACE(strategy_name(options) + " on " + std::to_string(n) + " ranks");
      test::run_ranks(
          n,
          [&](comm::World& world) {
            ToyModel model(world.rank());
            model.gradient = [&](const Parameter& p, int64_t i, int m) { return wild(world.rank(), m, p, i); };
            const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
            strategy->load_values([](Parameter& p) { std::fill_n(p.value.data<float>(), p.value.numel(), 1.0f); });
            kernels::Context context{*model.memory};
            Adam adam(*strategy, *model.memory);
            double norm = 0;
            for (int step = 0; step < 10; ++step) {
              strategy->begin_step(2);
              for (int m = 0; m < 2; ++m) run_backward(model, *strategy, m);
              const auto& segments = strategy->finish_gradients();
              norm = test::gradient_sum_of_squares(context, segments, {strategy->shard_group()},
                                                   kernels::SquareSums::ByElement);
              EXPECT_NEAR(test::gradient_sum_of_squares(context, segments, {strategy->shard_group()},
                                                        kernels::SquareSums::ByTensor),
                          norm, 1e-13 * norm);
              adam.update(context, segments);
              strategy->after_step();
            }
            const auto moment = [&](const Tensor& of) {
              return gathered(model,
                              [&](const Parameter& p, const Tensor& out) { strategy->gather_moment(p, of, out); });
            };
            const std::vector<std::vector<float>> all = {gathered_values(model, *strategy), moment(adam.m),
                                                         moment(adam.v)};
            int64_t elements = strategy->state_elements();
            const comm::Buf buf(&elements, 1, DType::I64);
            world.group().all_reduce(buf, buf, ReduceOp::Sum).wait();
            EXPECT_EQ(elements, options.zero == 0 ? n * kToyElements : kToyElements);
            if (options.zero == 0 && world.rank() == 0) {
              ddp = all;
              ddp_norm = norm;
            }
            world.group().barrier();
            EXPECT_TRUE(all == ddp);
            EXPECT_EQ(norm, ddp_norm);
            EXPECT_NE(all[0][0], 1.0f);
          },
          small_links(true));
    }
  }
}

// The gradient [3, 4] in two shards, clipped to 1: the norm is 5 and the scale 0.2 on every rank.
TEST(StrategyWeights, NormCountsEachElementOnce) {
  for (const StrategyOptions& options : every_strategy(false)) {
    test::run_ranks(2, [&](comm::World& world) {
      Gradient gradient = [](const Parameter&, int64_t i, int) { return static_cast<float>(i + 3) / 2; };
      ToyUnit unit("u", {{"w", {2}}}, false, &gradient);
      const auto strategy = make_strategy({&unit}, world.memory(), world.group(), options);
      kernels::Context context{world.memory()};
      MicroBatch batch;
      batch.sample_index = {0};
      Saved saved;
      strategy->begin_step(1);
      strategy->before_forward(unit, 0);
      strategy->after_forward(unit, 0);
      strategy->before_backward(unit, 0);
      unit.backward_weights(context, batch, saved, [&](Parameter& p) { strategy->gradient_ready(p, 0); });
      strategy->after_backward(unit, 0);
      const auto& segments = strategy->finish_gradients();
      for (const kernels::SquareSums how : test::kSquareSums) {
        EXPECT_EQ(test::gradient_sum_of_squares(context, segments, {strategy->shard_group()}, how), 25.0);
      }
      strategy->after_step();
    });
  }
}

TEST(StrategyWeights, AllRanksStartFromTheValuesOfRankZero) {
  for (const StrategyOptions& options : every_strategy(true, {1024, true, false})) {
    comm::WorldOptions world_options;
    world_options.topology = "2x2";
    test::run_ranks(
        4,
        [&](comm::World& world) {
          ToyModel model(world.rank());
          const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
          if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // nobody may go on first
          strategy->load_values([&](Parameter& p) {
            EXPECT_EQ(world.rank(), 0);
            for (int64_t i = 0; i < p.value.numel(); ++i) p.value.data<float>()[i] = wild(0, 0, p, i);
          });
          std::vector<float> expected;
          for (const Parameter* p : parameters_of(model.units)) {
            for (int64_t i = 0; i < numel(p->full_shape); ++i) expected.push_back(wild(0, 0, *p, i));
          }
          EXPECT_EQ(gathered_values(model, *strategy), expected) << strategy_name(options);
          EXPECT_EQ(total_of(world, "dp.params").calls, options.zero == 3 ? 4 : 2);
        },
        world_options);
  }
}

// ---- Parameters without gradient -----------------------------------------------------------------------------------

// Frozen: h0.w and all of h1. Not used: h0.b and the head on rank 0, embed.wpe on neither rank.
TEST(StrategyWeights, FrozenAndUnusedParameters) {
  for (bool deterministic : {false, true}) {
    for (int64_t bucket_bytes : {int64_t{0}, int64_t{1024}, int64_t{1} << 20}) {
      for (const StrategyOptions& options : every_strategy(false, {bucket_bytes, true, deterministic})) {
        SCOPED_TRACE(strategy_name(options) + ", bucket of " + std::to_string(bucket_bytes));
        test::run_ranks(
            2,
            [&](comm::World& world) {
              ToyModel model(world.rank());
              const std::vector<Parameter*> parameters = parameters_of(model.units);
              for (size_t index : {2, 5, 6}) parameters[index]->frozen = true;
              model.gradient = [&](const Parameter& p, int64_t, int) {
                if (p.name == "embed.wpe" || (p.name == "h0.b" && world.rank() == 0)) return 0.0f;
                return 1.0f;
              };
              const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
              strategy->load_values([](Parameter& p) { std::fill_n(p.value.data<float>(), p.value.numel(), 1.0f); });
              kernels::Context context{*model.memory};
              Adam adam(*strategy, *model.memory);
              for (int step = 0; step < 2; ++step) {
                strategy->begin_step(2);
                for (int m = 0; m < 2; ++m) {
                  MicroBatch batch;
                  batch.sample_index = {m};
                  Saved saved;
                  for (Unit* unit : model.units) {
                    strategy->before_forward(*unit, m);
                    strategy->after_forward(*unit, m);
                  }
                  for (size_t u = model.units.size(); u-- > 0;) {
                    Unit& unit = *model.units[u];
                    strategy->before_backward(unit, m);
                    if (world.rank() == 0 && unit.name() == "head") {
                      strategy->after_backward(unit, m);
                      continue;
                    }
                    unit.backward_weights(context, batch, saved, [&](Parameter& p) {
                      if (p.name != "embed.wpe" && (p.name != "h0.b" || world.rank() == 1)) {
                        strategy->gradient_ready(p, m);
                      }
                    });
                    strategy->after_backward(unit, m);
                  }
                }
                const auto& segments = strategy->finish_gradients();
                // 592 elements of 4, 33 + 1 of 2
                EXPECT_EQ(test::gradient_sum_of_squares(context, segments, {strategy->shard_group()},
                                                        kernels::SquareSums::ByTensor),
                          592 * 16 + 34 * 4);
                adam.update(context, segments);
                strategy->after_step();
              }
              const std::vector<float> values = gathered_values(model, *strategy);
              const std::vector<float> second = gathered(
                  model, [&](const Parameter& p, const Tensor& out) { strategy->gather_moment(p, adam.v, out); });
              size_t at = 0;
              for (size_t p = 0; p < parameters.size(); ++p) {
                for (int64_t i = 0; i < kToyParameters[p]; ++i, ++at) {
                  const bool frozen = p == 2 || p == 5 || p == 6;
                  // AdamW's first steps of a constant gradient are of size lr; decay of matrices is 1 - 0.1 x 0.1.
                  const double step1 = p == 1 ? 0.99 : (p == 0 ? 0.99 : 1) - 0.1, step2 = p == 1   ? 0.99 * 0.99
                                                                                          : p == 0 ? step1 * 0.99 - 0.1
                                                                                                   : step1 - 0.1;
                  ASSERT_NEAR(values[at], frozen ? 1.0 : step2, 1e-5) << parameters[p]->name;
                  ASSERT_EQ(second[at] == 0, frozen || p == 1) << parameters[p]->name;
                }
              }
              int64_t elements = strategy->state_elements();
              const comm::Buf buf(&elements, 1, DType::I64);
              world.group().all_reduce(buf, buf, ReduceOp::Sum).wait();
              EXPECT_EQ(elements, (options.zero == 0 ? 2 : 1) * (592 + 80 + 33 + 1));
            },
            small_links(deterministic));
      }
    }
  }
}

}  // namespace
}  // namespace sixfold::parallel
