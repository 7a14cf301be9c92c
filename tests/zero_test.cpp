// What the stages of ZeRO send and keep, counted in links and memory, beside formulas worked out here and those of
// predict.h; and when ZeRO-3's parameters are whole.
#include <cmath>

#include "runtime/parallel/predict.h"
#include "runtime/train/optimizer.h"
#include "tests/toy_model.h"

namespace sixfold::parallel {
namespace {

// The toy model with a tied head, by unit: h1 112 + 7, h0 528 + 0 + 33; root: embedding 592 + 80 and head 1. In buckets
// of 256 elements: 1 + 7 + 112 + 33 + 0 + 528 and 80 + 592.
constexpr int64_t kUnits[] = {119, 561}, kRoot = 673, kBuckets[] = {681, 672};

int64_t padded(int64_t count, int n) {
  return (count + n - 1) / n * n;
}

StrategyOptions stage(int zero, bool hsdp = false) {
  StrategyOptions options{1024, true, false};
  options.zero = zero;
  options.hsdp = hsdp;
  return options;
}

/// Trains `num_steps` steps of `m` micro-batches on this rank.
void train_toy(comm::World& world, const StrategyOptions& options, int num_steps, int m,
               const std::function<void(ToyModel&, Strategy&)>& check) {
  ToyModel model(world.rank(), /*tied=*/true);
  model.gradient = [](const Parameter&, int64_t, int) { return 1.0f; };
  const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
  world.comm_table().reset();
  for (int step = 0; step < num_steps; ++step) run_step(model, *strategy, m);
  strategy->settle();
  check(model, *strategy);
}

// ---- Bytes ---------------------------------------------------------------------------------------------------------

struct Sent {
  std::string tag;
  int64_t payload, padding;  // elements, of which a rank sends (N - 1) / N
};

// The table of strategy.h, in elements that are to be multiplied by (N-1)/N.
std::vector<Sent> table(int zero, int n, int m) {
  int64_t buckets = 0, units = 0;
  for (int64_t count : kBuckets) buckets += padded(count, n);
  for (int64_t count : kUnits) units += padded(count, n);
  const int64_t root = padded(kRoot, n), all = kToyElements, inner = kToyElements - kRoot;
  switch (zero) {
    case 0:
      return {{"dp.grads", 2 * all, 2 * (buckets - all)}};
    case 1:
      return {{"zero1.grads", all, buckets - all}, {"zero1.params", all, buckets - all}};
    case 2:
      return {{"zero2.grads", m * all, m * (buckets - all)}, {"zero2.params", all, buckets - all}};
    default:
      return {{"zero3.grads", m * all, m * (units + root - all)},
              {"zero3.gather", 2 * m * inner + kRoot, 2 * m * (units - inner) + root - kRoot}};
  }
}

TEST(Zero, BytesSentAreTheTable) {
  for (int zero = 0; zero <= 3; ++zero) {
    for (int n : {2, 3, 4, 8}) {
      for (int m : {1, 3}) {
        for (DType dtype : {DType::F32, DType::BF16}) {
          SCOPED_TRACE("stage " + std::to_string(zero) + ", ranks " + std::to_string(n) + ", micro-batches " +
                       std::to_string(m));
          StrategyOptions options = stage(zero);
          options.grad_dtype = dtype;
          comm::WorldOptions world_options = small_links(false);
          world_options.algorithm = comm::Algorithm::Ring;
          test::run_ranks(
              n,
              [&](comm::World& world) {
                train_toy(world, options, 2, m, [&](ToyModel& model, Strategy&) {
                  std::vector<TagTraffic> predicted = predicted_traffic(model.units, {options, n, 1, m});
                  const std::vector<Sent> expected = table(zero, n, m);
                  ASSERT_EQ(predicted.size(), expected.size());
                  for (size_t i = 0; i < expected.size(); ++i) {
                    const bool is_grads = expected[i].tag.find("grads") != std::string::npos;
                    const int64_t bytes = is_grads && dtype == DType::BF16 ? 2 : 4;
                    const int64_t sent = (expected[i].payload + expected[i].padding) * (n - 1) / n * bytes;
                    EXPECT_EQ(total_of(world, expected[i].tag).sent_bytes, static_cast<uint64_t>(2 * sent));
                    EXPECT_EQ(predicted[i].tag, expected[i].tag);
                    const double share = static_cast<double>(bytes) * (n - 1) / n;
                    EXPECT_NEAR(predicted[i].payload_bytes, share * static_cast<double>(expected[i].payload), 1e-9);
                    EXPECT_NEAR(predicted[i].padding_bytes, share * static_cast<double>(expected[i].padding), 1e-9);
                  }
                });
              },
              world_options);
        }
      }
    }
  }
}

// N = 2 ranks a node, M = 2 nodes: what the stage sends inside a node, and 2 (M-1)/M G/N between them.
TEST(Zero, HybridSendsShardsBetweenNodes) {
  for (int zero : {2, 3}) {
    for (int m : {1, 3}) {
      comm::WorldOptions world_options = small_links(false);
      world_options.algorithm = comm::Algorithm::Ring;
      world_options.topology = "2x2";
      const StrategyOptions options = stage(zero, true);
      test::run_ranks(
          4,
          [&](comm::World& world) {
            train_toy(world, options, 1, m, [&](ToyModel& model, Strategy&) {
              double predicted = 0;
              for (const TagTraffic& t : predicted_traffic(model.units, {options, 4, 2, m})) {
                if (t.tag == "hsdp.grads") predicted = t.payload_bytes + t.padding_bytes;
              }
              for (const Sent& sent : table(zero, 2, m)) {
                EXPECT_EQ(total_of(world, sent.tag).sent_bytes,
                          static_cast<uint64_t>((sent.payload + sent.padding) * 2));
              }
              // Shards of half of each bucket or unit; where a shard is odd, one of its two ranks sends a part more.
              uint64_t across = total_of(world, "hsdp.grads").sent_bytes;
              int64_t both = static_cast<int64_t>(across);
              const comm::Buf buf(&both, 1, DType::I64);
              world.group().all_reduce(buf, buf, ReduceOp::Sum).wait();
              const int64_t elements = zero == 2 ? 682 + 672 : 120 + 562 + 674;
              EXPECT_EQ(both, 2 * elements * 4);  // 2 (M-1)/M G/N bytes, of four ranks
              EXPECT_EQ(predicted, static_cast<double>(elements * 4) / 2);
            });
          },
          world_options);
    }
  }
}

TEST(Zero, EvaluationIsNotInTheBytesOfTheSteps) {
  test::run_ranks(2, [](comm::World& world) {
    train_toy(world, stage(3), 1, 1, [&](ToyModel& model, Strategy& strategy) {
      const uint64_t of_steps = total_of(world, "zero3.gather").sent_bytes;
      for (int pass = 0; pass < 2; ++pass) {
        for (Unit* unit : model.units) {
          strategy.before_forward(*unit, 0);
          for (const Parameter* p : unit->parameters()) EXPECT_TRUE(p->value.defined());
          strategy.after_forward(*unit, 0);
        }
        for (const Parameter* p : parameters_of(model.units)) EXPECT_FALSE(p->value.defined()) << p->name;
      }
      EXPECT_EQ(total_of(world, "zero3.gather").sent_bytes, of_steps);
      EXPECT_EQ(total_of(world, "zero3.gather.eval").calls, 2 * 3);
    });
  });
}

// ---- Memory --------------------------------------------------------------------------------------------------------

struct Peaks {
  int64_t parameters, gradients, optimizer;
};

// n = 4, f32, AdamW; in elements, beside the prediction, and the measured peaks.
TEST(Zero, PeakMemoryIsTheFormula) {
  constexpr int n = 4;
  const int64_t buckets = padded(kBuckets[0], n) + padded(kBuckets[1], n);
  const int64_t h1 = padded(kUnits[0], n), h0 = padded(kUnits[1], n), root = padded(kRoot, n);
  const int64_t units = h1 + h0 + root;
  for (bool deterministic : {false, true}) {
    for (int m : {1, 3}) {
      // In the last micro-batch, when the backward reaches the embedding: ZeRO-2 has one bucket to add to and, of
      // several micro-batches, both on their way from before; ZeRO-3 the root's and those of h1 and h0.
      const int64_t zero2_travelling = buckets + (m == 1 ? 0 : buckets);
      const Peaks expected[] = {
          {buckets, buckets * (deterministic ? 2 : 1), 2 * kToyElements},
          {buckets, buckets + (deterministic ? buckets / n : 0), 2 * buckets / n},
          {buckets, buckets / n + zero2_travelling, 2 * buckets / n},
          {units / n + root + h1 + h0, units / n + root + h1 + h0 + (m == 1 ? 0 : root), 2 * units / n},
      };
      for (int zero = 0; zero <= 3; ++zero) {
        SCOPED_TRACE("stage " + std::to_string(zero) + ", micro-batches " + std::to_string(m));
        StrategyOptions options = stage(zero);
        options.deterministic = deterministic;
        comm::WorldOptions world_options = small_links(deterministic);
        test::run_ranks(
            n,
            [&](comm::World& world) {
              train_toy(world, options, 2, m, [&](ToyModel& model, Strategy& strategy) {
                const auto optimizer = train::make_optimizer({}, strategy.state_elements(), world.memory());
                const MemoryPrediction predicted = predicted_memory(model.units, {options, n, 1, m}, 2, world.rank());
                const auto peak = [&](Category category) {
                  return static_cast<int64_t>(world.memory().peak_bytes(category));
                };
                const Peaks& right = expected[zero];
                EXPECT_EQ(peak(Category::Parameters), right.parameters * 4);
                EXPECT_EQ(peak(Category::Gradients), right.gradients * 4);
                EXPECT_EQ(predicted.parameters, right.parameters * 4);
                EXPECT_EQ(predicted.gradients, right.gradients * 4);
                EXPECT_EQ(peak(Category::Optimizer), predicted.optimizer);
                if (world.rank() > 0) return;  // others have less, and padding
                EXPECT_EQ(predicted.optimizer, right.optimizer * 4);
              });
            },
            world_options);
      }
    }
  }
}

TEST(Zero, WithoutOverlapNothingTravelsBesideWhatIsFilled) {
  for (int zero : {2, 3}) {
    StrategyOptions options = stage(zero);
    options.overlap = false;
    test::run_ranks(2, [&](comm::World& world) {
      train_toy(world, options, 2, 3, [&](ToyModel& model, Strategy&) {
        const MemoryPrediction predicted = predicted_memory(model.units, {options, 2, 1, 3}, 0);
        EXPECT_EQ(world.memory().peak_bytes(Category::Gradients), static_cast<size_t>(predicted.gradients));
        EXPECT_EQ(world.memory().peak_bytes(Category::Parameters), static_cast<size_t>(predicted.parameters));
        // Shards, and: both buckets, since h0's unit lies in the first and the tied weight in the second; the root and
        // h0.
        EXPECT_EQ(predicted.gradients, zero == 2 ? (677 + 1354) * 4 : (60 + 281 + 337 + 674 + 562) * 4);
      });
    });
  }
}

// ---- Overlap -------------------------------------------------------------------------------------------------------

// Reductions that have been started after the backward of head, h1, h0, embed in two micro-batches. h0 completes the
// first bucket, the embedding the second; ZeRO-3 has one a unit, head and embedding together.
TEST(Zero, OverlapStartsReductionsWhileBackwardGoesOn) {
  const std::vector<int64_t> expected[] = {
      {}, {0, 0, 0, 0, 0, 0, 2, 4}, {0, 0, 1, 2, 2, 2, 3, 4}, {0, 1, 2, 3, 3, 4, 5, 6}};
  for (int zero : {1, 2, 3}) {
    test::run_ranks(2, [&](comm::World& world) {
      ToyModel model(world.rank(), /*tied=*/true);
      model.gradient = [](const Parameter&, int64_t, int) { return 1.0f; };
      const auto strategy = make_strategy(model.units, world.memory(), world.group(), stage(zero));
      std::vector<int64_t> calls;
      const std::string tag = "zero" + std::to_string(zero) + ".grads";
      run_step(model, *strategy, 2, [&] { calls.push_back(total_of(world, tag).calls); });
      EXPECT_EQ(calls, expected[zero]);
    });
  }
}

// Rank 1 is late with its share of the new values: no unit of rank 0 works before it has them.
TEST(Zero, AUnitWaitsForItsNewValues) {
  for (int zero : {1, 2, 3}) {
    for (bool overlap : {false, true}) {
      StrategyOptions options = stage(zero);
      options.overlap = overlap;
      test::run_ranks(2, [&](comm::World& world) {
        ToyModel model(world.rank(), /*tied=*/true);
        model.gradient = [](const Parameter&, int64_t, int) { return 1.0f; };
        const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
        for (int step = 1; step <= 3; ++step) {
          strategy->begin_step(1);
          run_backward(model, *strategy, 0);
          for (const UpdateSegment& s : strategy->finish_gradients()) {
            std::fill_n(s.value.data<float>(), s.value.numel(), static_cast<float>(step));
          }
          if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          strategy->after_step();
          for (Unit* unit : model.units) {
            strategy->before_forward(*unit, 0);
            for (const Parameter* p : unit->parameters()) {
              const std::vector<float> values(p->value.data<float>(), p->value.data<float>() + p->value.numel());
              ASSERT_EQ(values, std::vector<float>(values.size(), static_cast<float>(step))) << p->name;
            }
            strategy->after_forward(*unit, 0);
          }
        }
      });
    }
  }
}

// ---- ZeRO-3: when parameters are whole -----------------------------------------------------------------------------

TEST(Zero3, UnitsAreWholeWhileTheyWorkAndTheRootForTheStep) {
  for (int prefetch : {0, 1, 3}) {
    StrategyOptions options = stage(3);
    options.prefetch = prefetch;
    test::run_ranks(2, [&](comm::World& world) {
      ToyModel model(world.rank(), /*tied=*/true);
      model.gradient = [](const Parameter&, int64_t, int) { return 1.0f; };
      const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
      strategy->load_values([](Parameter& p) {
        for (int64_t i = 0; i < p.value.numel(); ++i) p.value.data<float>()[i] = wild(0, 0, p, i);
      });
      const auto whole = [&] {
        std::string names;
        for (Unit* unit : model.units) names += unit->parameters()[0]->value.defined() ? unit->name() + " " : "";
        return names;
      };
      const auto calls = [&] { return total_of(world, "zero3.gather").calls; };
      const auto expect_values = [&](Unit& unit) {
        for (const Parameter* p : unit.parameters()) {
          for (int64_t i = 0; i < p->value.numel(); ++i) ASSERT_EQ(p->value.data<float>()[i], wild(0, 0, *p, i));
        }
      };
      EXPECT_EQ(whole(), "");
      for (int step = 0; step < 2; ++step) {
        strategy->begin_step(1);
        const int64_t before = calls();
        // Embedding: the root, and as many of h0 and h1 as are gathered ahead.
        const int64_t ahead[] = {1 + std::min(prefetch, 2), 2 + std::min(prefetch, 1), 3, 3};
        const std::string names[] = {"embed head ", "embed h0 head ", "embed h1 head ", "embed head "};
        for (size_t u = 0; u < 4; ++u) {
          strategy->before_forward(*model.units[u], 0);
          EXPECT_EQ(whole(), names[u]);
          EXPECT_EQ(calls() - before, ahead[u]);
          expect_values(*model.units[u]);
          strategy->after_forward(*model.units[u], 0);
          EXPECT_EQ(whole(), "embed head ");
        }
        const int64_t ahead_backward[] = {5, 4 + std::min(prefetch, 1), 3 + std::min(prefetch, 2)};
        const std::string names_backward[] = {"embed head ", "embed h0 head ", "embed h1 head ", "embed head "};
        for (size_t u = 4; u-- > 0;) {
          Unit& unit = *model.units[u];
          strategy->before_backward(unit, 0);
          EXPECT_EQ(whole(), names_backward[u]);
          EXPECT_EQ(calls() - before, u == 0 ? 5 : u == 1 ? 5 : ahead_backward[u - 1]) << u;
          expect_values(unit);
          strategy->after_backward(unit, 0);
        }
        EXPECT_EQ(whole(), "embed head ");
        strategy->finish_gradients();
        EXPECT_EQ(whole(), "");
        strategy->after_step();
      }
    });
  }
}

// Two micro-batches in one unit, as in a pipeline: gathered once, whole until both are done.
TEST(Zero3, AUnitWithTwoUsersIsGatheredOnce) {
  StrategyOptions options = stage(3);
  options.prefetch = 0;
  test::run_ranks(2, [&](comm::World& world) {
    ToyModel model(world.rank());
    const auto strategy = make_strategy(model.units, world.memory(), world.group(), options);
    Unit& h0 = *model.units[1];
    strategy->begin_step(2);
    strategy->before_forward(h0, 0);
    strategy->before_forward(h0, 1);
    strategy->after_forward(h0, 0);
    EXPECT_TRUE(h0.parameters()[0]->value.defined());
    strategy->after_forward(h0, 1);
    EXPECT_FALSE(h0.parameters()[0]->value.defined());
    EXPECT_EQ(total_of(world, "zero3.gather").calls, 1);
  });
}

}  // namespace
}  // namespace sixfold::parallel
