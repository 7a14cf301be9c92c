// Every strategy on the toy model: whoever keeps what, the sums, the weights and the norm are the same.
#include <cmath>
#include <cstring>

#include "runtime/parallel/check_replicas.h"
#include "runtime/train/clip.h"
#include "tests/toy_model.h"

namespace sixfold::parallel {
namespace {

/// DDP and the three stages; where the ranks are on two nodes, the hybrids as well.
std::vector<StrategyOptions> every_strategy(bool nodes, const StrategyOptions& base = {}) {
  std::vector<StrategyOptions> all;
  for (int zero = 0; zero <= 3; ++zero) {
    for (bool hsdp : {false, true}) {
      if (hsdp && (zero < 2 || !nodes)) continue;
      StrategyOptions options = base;
      options.zero = zero;
      options.hsdp = hsdp;
      all.push_back(options);
    }
  }
  return all;
}

// ---- Sums ----------------------------------------------------------------------------------------------------------

TEST(Strategies, SumRanksAndMicroBatchesOnce) {
  // Gradients 1, 2 on rank 0 and 3, 4 on rank 1, each a quarter of the global batch: the mean is 2.5. In step 2 again.
  for (bool deterministic : {false, true}) {
    for (bool overlap : {false, true}) {
      for (const StrategyOptions& options : every_strategy(false, {1024, overlap, deterministic})) {
        SCOPED_TRACE(strategy_name(options));
        test::run_ranks(
            2,
            [&](comm::World& world) {
              ToyModel model(world.rank(), /*tied=*/true);
              model.gradient = [&](const Parameter&, int64_t, int m) {
                return 0.25f * static_cast<float>(2 * world.rank() + m + 1);
              };
              const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
              // The tied weight gets as much from the head as from the embedding.
              std::vector<float> expected(kToyElements, 2.5f);
              std::fill_n(expected.begin(), kToyParameters[0], 5.0f);
              for (int step = 1; step <= 2; ++step) {
                run_step(model, *strategy, 2);
                EXPECT_EQ(gathered_gradients(model, *strategy), expected) << "step " << step;
              }
            },
            small_links(deterministic));
      }
    }
  }
}

/// Gradients after one step of 3 micro-batches on 4 ranks (two nodes of two) that are late by random times and send in
/// slots of another size each time, as rank 0 has them; all ranks must have the same bits.
std::vector<float> wild_gradients(const StrategyOptions& options, uint32_t delay_seed) {
  std::vector<std::vector<float>> by_rank(4);
  comm::WorldOptions world_options = small_links(options.deterministic);
  world_options.topology = "2x2";
  world_options.links.slot_bytes = size_t{64} << (delay_seed % 4 * 2);
  world_options.links.min_in_place_bytes = delay_seed % 2 == 0 ? 64 : SIZE_MAX;
  world_options.links.min_lend_bytes = delay_seed % 3 == 0 ? 64 : SIZE_MAX;
  test::run_ranks(
      4,
      [&](comm::World& world) {
        ToyModel model(world.rank());
        model.gradient = [&](const Parameter& p, int64_t i, int m) { return wild(world.rank(), m, p, i); };
        const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
        uint32_t draw = 0;
        run_step(model, *strategy, 3, [&] {
          const PhiloxBlock random = philox({delay_seed, static_cast<uint32_t>(world.rank())}, {draw++, 0, 0, 0});
          if (random[0] % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random[1] % 400));
          if (random[2] % 2 == 0) world.progress();
        });
        by_rank[static_cast<size_t>(world.rank())] = gathered_gradients(model, *strategy);
      },
      world_options);
  for (const auto& gradients : by_rank) {
    EXPECT_EQ(std::memcmp(gradients.data(), by_rank[0].data(), gradients.size() * sizeof(float)), 0);
  }
  return by_rank[0];
}

struct Expected {
  std::vector<float> in_order;  // f32: ranks in order within a micro-batch, then micro-batches in order
  std::vector<float> by_node;   // f32: that for each node, then the nodes in order
  std::vector<double> exact, magnitude;
};
Expected expected_wild_gradients() {
  ToyModel model(0);
  Expected expected;
  for (const Parameter* p : parameters_of(model.units)) {
    for (int64_t i = 0; i < numel(p->full_shape); ++i) {
      float total = 0, node[2] = {0, 0};
      double exact = 0, magnitude = 0;
      for (int m = 0; m < 3; ++m) {
        float sum = wild(0, m, *p, i);
        for (int rank = 1; rank < 4; ++rank) sum += wild(rank, m, *p, i);
        total += sum;
        for (int k = 0; k < 2; ++k) node[k] += wild(2 * k, m, *p, i) + wild(2 * k + 1, m, *p, i);
        for (int rank = 0; rank < 4; ++rank) {
          exact += static_cast<double>(wild(rank, m, *p, i));
          magnitude += std::fabs(static_cast<double>(wild(rank, m, *p, i)));
        }
      }
      expected.in_order.push_back(total);
      expected.by_node.push_back(node[0] + node[1]);
      expected.exact.push_back(exact);
      expected.magnitude.push_back(magnitude);
    }
  }
  return expected;
}

TEST(Strategies, DeterministicBitsDependOnNeitherStageNorBucketNorOverlapNorTime) {
  const Expected expected = expected_wild_gradients();
  uint32_t seed = 0;
  for (int64_t bucket_bytes : kBucketBytes) {
    for (bool overlap : {false, true}) {
      for (const StrategyOptions& options : every_strategy(true, {bucket_bytes, overlap, true})) {
        if (options.zero == 3 && bucket_bytes > 0) continue;  // its buckets are units
        const std::vector<float> gradients = wild_gradients(options, ++seed);
        const std::vector<float>& right = options.hsdp ? expected.by_node : expected.in_order;
        ASSERT_EQ(gradients.size(), right.size());
        EXPECT_EQ(std::memcmp(gradients.data(), right.data(), gradients.size() * sizeof(float)), 0)
            << strategy_name(options) << ", bucket of " << bucket_bytes << " bytes, overlap " << overlap;
      }
    }
  }
}

TEST(Strategies, SumsAreRightForEveryBucketWithOverlapAndWithout) {
  const Expected expected = expected_wild_gradients();
  uint32_t seed = 100;
  for (int64_t bucket_bytes : kBucketBytes) {
    for (StrategyOptions options : every_strategy(true, {bucket_bytes, true, false})) {
      if (options.zero == 3 && bucket_bytes > 4) continue;  // twice, for its buckets are units
      options.overlap = ++seed % 2 == 0;
      const std::vector<float> gradients = wild_gradients(options, seed);
      ASSERT_EQ(gradients.size(), expected.exact.size());
      for (size_t i = 0; i < gradients.size(); ++i) {
        // Twelve terms: at most eleven roundings of at most 2^-24 of the sum of their magnitudes.
        ASSERT_NEAR(static_cast<double>(gradients[i]), expected.exact[i], 11 * 0x1p-24 * expected.magnitude[i])
            << strategy_name(options);
      }
    }
  }
}

TEST(Strategies, CancellingSumHasOneResultOnAllRanks) {
  const float values[] = {1e8f, 1, -1e8f, 1};
  for (int round = 0; round < 50; ++round) {
    StrategyOptions options{round % 3 * int64_t{1000}, true, round % 2 == 0};
    options.zero = round / 2 % 4;
    std::vector<std::vector<float>> by_rank(4);
    test::run_ranks(
        4,
        [&](comm::World& world) {
          ToyModel model(world.rank());
          model.gradient = [&](const Parameter&, int64_t, int) { return values[world.rank()]; };
          const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
          const PhiloxBlock random =
              philox({7, static_cast<uint32_t>(round)}, {static_cast<uint32_t>(world.rank()), 0, 0, 0});
          std::this_thread::sleep_for(std::chrono::microseconds(random[0] % 1000));
          run_step(model, *strategy, 1);
          by_rank[static_cast<size_t>(world.rank())] = gathered_gradients(model, *strategy);
        },
        small_links(options.deterministic));
    for (const auto& gradients : by_rank) ASSERT_EQ(gradients, by_rank[0]);
    // In rank order: 1e8 + 1 = 1e8, - 1e8 = 0, + 1 = 1.
    if (options.deterministic) {
      ASSERT_EQ(by_rank[0], std::vector<float>(kToyElements, 1.0f)) << strategy_name(options);
    }
  }
}

// bf16 holds sums of small integers: exact. Others lose at most 2^-8 on the way in and as much on the way out of each
// reduction, and where partial sums travel.
TEST(Strategies, GradientsTravelAsBf16) {
  for (bool deterministic : {false, true}) {
    StrategyOptions base{1024, true, deterministic};
    base.grad_dtype = DType::BF16;
    for (const StrategyOptions& options : every_strategy(true, base)) {
      SCOPED_TRACE(strategy_name(options));
      comm::WorldOptions world_options = small_links(deterministic);
      world_options.topology = "2x2";
      const Expected expected = expected_wild_gradients();
      test::run_ranks(
          4,
          [&](comm::World& world) {
            ToyModel model(world.rank());
            const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
            model.gradient = [&](const Parameter&, int64_t i, int m) {
              return static_cast<float>(i % 8 + world.rank() + m);
            };
            run_step(model, *strategy, 3);
            size_t k = 0;
            const std::vector<float> whole_numbers = gathered_gradients(model, *strategy);
            for (int64_t count : kToyParameters) {
              for (int64_t i = 0; i < count; ++i, ++k) {
                ASSERT_EQ(whole_numbers[k], static_cast<float>(12 * (i % 8) + 3 * (0 + 1 + 2 + 3) + 4 * (0 + 1 + 2)));
              }
            }
            model.gradient = [&](const Parameter& p, int64_t i, int m) { return wild(world.rank(), m, p, i); };
            run_step(model, *strategy, 3);
            const std::vector<float> rounded = gathered_gradients(model, *strategy);
            const int roundings = (deterministic ? 2 : 4) * (options.hsdp ? 2 : 1);
            double largest = 0;
            for (size_t i = 0; i < rounded.size(); ++i) {
              const double error = std::fabs(static_cast<double>(rounded[i]) - expected.exact[i]);
              ASSERT_LE(error, roundings * 0x1p-8 * expected.magnitude[i]);
              largest = std::max(largest, error / expected.magnitude[i]);
            }
            EXPECT_GT(largest, 0x1p-12);  // f32 would be nearer
          },
          world_options);
    }
  }
}

// ---- Weights -------------------------------------------------------------------------------------------------------

// 16 rows in all, 8 a rank, cut into micro-batches in every way. Row r pulls every weight towards a target of its own:
// the loss is the mean over rows of (w - target)^2 / 2.
TEST(Strategies, MicroBatchesTimesRowsDoNotMatter) {
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
            kernels::sgd_update(context, float{kLr}, 1, 0, s.grad, s.value);
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
        check_replicas(model.units, *strategy, world.group(), *model.memory, 5);
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
      kernels::adamw_update(context, {.lr = 0.1f, .weight_decay = s.decay ? 0.1f : 0.0f, .step = step}, s.grad, s.value,
                            m.slice(s.state_offset, {n}), v.slice(s.state_offset, {n}));
    }
  }
};

// Weights, moments and the norm of ten steps of AdamW with gradients that differ by element, bit for bit; each element
// of the parameters is in one shard's state, padding in none.
TEST(Strategies, ShardedStateIsTheWholeState) {
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
              norm = train::gradient_sum_of_squares(context, segments, strategy->shard_group(), train::NormOrder::None);
              EXPECT_NEAR(train::gradient_sum_of_squares(context, segments, strategy->shard_group(),
                                                         train::NormOrder::Segments),
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
TEST(Strategies, NormCountsEachElementOnce) {
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
      for (train::NormOrder order : {train::NormOrder::Segments, train::NormOrder::None}) {
        const train::Clip clip =
            train::clip_factor(train::gradient_sum_of_squares(context, segments, strategy->shard_group(), order), 1);
        EXPECT_EQ(clip.norm, 5.0);
        EXPECT_EQ(clip.scale, 0.2f);
      }
      strategy->after_step();
    });
  }
}

TEST(Strategies, AllRanksStartFromTheValuesOfRankZero) {
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
TEST(Strategies, FrozenAndUnusedParameters) {
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
                EXPECT_EQ(train::gradient_sum_of_squares(context, segments, strategy->shard_group(),
                                                         train::NormOrder::Segments),
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

// ---- What cannot be ------------------------------------------------------------------------------------------------

TEST(Strategies, ImpossibleOptionsAreRefused) {
  const auto refusal = [](const StrategyOptions& options, const comm::Topology& topology) -> std::string {
    try {
      check_strategy(options, topology);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  const comm::Topology one = comm::Topology::one_node(4), two = comm::Topology::parse("2x2", 4);
  const comm::Topology uneven({0, 0, 0, 1});
  StrategyOptions options;
  options.zero = 4;
  EXPECT_NE(refusal(options, one).find("--zero 4: allowed values are 0, 1, 2, 3"), std::string::npos);
  options.zero = 1;
  options.hsdp = true;
  EXPECT_NE(refusal(options, two).find("--zero 1"), std::string::npos);
  options.zero = 2;
  EXPECT_EQ(refusal(options, two), "");
  for (const comm::Topology& topology : {one, uneven}) {
    const std::string message = refusal(options, topology);
    EXPECT_NE(message.find("--hsdp"), std::string::npos) << message;
    EXPECT_NE(message.find("two nodes or more of as many ranks each"), std::string::npos) << message;
  }
  options.grad_dtype = DType::F16;
  EXPECT_NE(refusal(options, two).find("f32, bf16"), std::string::npos);
  options = {};
  options.prefetch = -1;
  EXPECT_NE(refusal(options, one).find("--prefetch -1"), std::string::npos);
}

}  // namespace
}  // namespace sixfold::parallel
