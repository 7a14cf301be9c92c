// Gradients of every strategy on the toy model: whoever keeps what, the sums are the same.
#include <cmath>
#include <cstring>

#include "tests/sanitized.h"
#include "tests/toy_model.h"

namespace sixfold::parallel {
namespace {

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
    if (test::kSanitized && bucket_bytes > kToyElements * 4) continue;  // one bucket, as before
    for (bool overlap : {false, true}) {
      for (const StrategyOptions& options : every_strategy(true, {bucket_bytes, overlap, true})) {
        if (options.zero == 3 && bucket_bytes > 0) continue;  // its buckets are units
        // Without overlap, a sanitizer sees parameters one a bucket and some a bucket.
        if (test::kSanitized && !overlap && bucket_bytes != 0 && bucket_bytes != 1024) continue;
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
    if (test::kSanitized && bucket_bytes > kToyElements * 4) continue;
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
