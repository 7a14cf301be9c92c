#include "runtime/parallel/ddp.h"

#include <cmath>
#include <cstring>

#include "runtime/parallel/check_replicas.h"
#include "runtime/train/clip.h"
#include "tests/toy_model.h"

namespace sixfold::parallel {
namespace {

// ---- Sums ----------------------------------------------------------------------------------------------------------

TEST(Ddp, SumsRanksAndMicroBatchesOnce) {
  // Gradients 1, 2 on rank 0 and 3, 4 on rank 1, each a quarter of the global batch: the mean is 2.5. In step 2 again.
  for (bool deterministic : {false, true}) {
    for (bool overlap : {false, true}) {
      test::run_ranks(
          2,
          [&](comm::World& world) {
            ToyModel model(world.rank());
            model.gradient = [&](const Parameter&, int64_t, int m) {
              return 0.25f * static_cast<float>(2 * world.rank() + m + 1);
            };
            Ddp ddp(model.units, world.memory(), world.group(), {1024, overlap, deterministic});
            for (int step = 1; step <= 2; ++step) {
              run_step(model, ddp, 2);
              EXPECT_EQ(gathered_gradients(model, ddp), std::vector<float>(kToyElements, 2.5f));
              // Buckets of 256 elements: 1 + 7 + 112 + 33 + 0 + 528 and 80 + 592.
              EXPECT_EQ(row_of(world, "dp.grads").calls, step * 2 * (deterministic ? 2 : 1));
            }
          },
          small_links(deterministic));
    }
  }
}

TEST(Ddp, SegmentsCoverEachElementOnceWhateverTheBucket) {
  for (int64_t bucket_bytes : {0, 1024, 1 << 20}) {
    test::run_ranks(2, [&](comm::World& world) {
      ToyModel model(world.rank());
      model.gradient = [&](const Parameter&, int64_t i, int) { return static_cast<float>(i + 1) / 2; };
      Ddp ddp(model.units, world.memory(), world.group(), {bucket_bytes, true, false});
      ddp.begin_step(1);
      run_backward(model, ddp, 0);
      const std::vector<UpdateSegment>& segments = ddp.finish_gradients();
      // The seven parameters that have elements, last one first, with their own optimizer state each.
      ASSERT_EQ(segments.size(), 7u);
      const int64_t counts[] = {1, 7, 112, 33, 528, 80, 592};
      const bool decays[] = {false, false, true, false, true, true, true};
      int64_t state_offset = 0;
      for (size_t s = 0; s < 7; ++s) {
        ASSERT_EQ(segments[s].grad.numel(), counts[s]);
        ASSERT_EQ(segments[s].value.numel(), counts[s]);
        EXPECT_EQ(segments[s].decay, decays[s]);
        EXPECT_EQ(segments[s].state_offset, state_offset);
        for (int64_t i = 0; i < counts[s]; ++i) ASSERT_EQ(segments[s].grad.data<float>()[i], static_cast<float>(i + 1));
        state_offset += counts[s];
      }
      EXPECT_EQ(ddp.state_elements(), kToyElements);
      // What the optimizer writes to a segment is the parameter's value.
      segments[6].value.data<float>()[16] = 5;
      EXPECT_EQ(parameters_of(model.units)[0]->value.data<float>()[16], 5);
    });
  }
}

/// Gradients after one step of 3 micro-batches on 4 ranks that are late by random times and send in slots of another
/// size each time, as rank 0 has them; all ranks must have the same bits.
std::vector<float> wild_gradients(int64_t bucket_bytes, bool overlap, bool deterministic, uint32_t delay_seed) {
  std::vector<std::vector<float>> by_rank(4);
  comm::WorldOptions world_options = small_links(deterministic);
  world_options.links.slot_bytes = size_t{64} << (delay_seed % 4 * 2);
  world_options.links.min_in_place_bytes = delay_seed % 2 == 0 ? 64 : SIZE_MAX;
  world_options.links.min_lend_bytes = delay_seed % 3 == 0 ? 64 : SIZE_MAX;
  test::run_ranks(
      4,
      [&](comm::World& world) {
        ToyModel model(world.rank());
        model.gradient = [&](const Parameter& p, int64_t i, int m) { return wild(world.rank(), m, p, i); };
        Ddp ddp(model.units, world.memory(), world.group(), {bucket_bytes, overlap, deterministic});
        uint32_t draw = 0;
        run_step(model, ddp, 3, [&] {
          const PhiloxBlock random = philox({delay_seed, static_cast<uint32_t>(world.rank())}, {draw++, 0, 0, 0});
          if (random[0] % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random[1] % 800));
          if (random[2] % 2 == 0) world.progress();
        });
        by_rank[static_cast<size_t>(world.rank())] = gathered_gradients(model, ddp);
      },
      world_options);
  for (const auto& gradients : by_rank) {
    EXPECT_EQ(std::memcmp(gradients.data(), by_rank[0].data(), gradients.size() * sizeof(float)), 0);
  }
  return by_rank[0];
}

struct Expected {
  std::vector<float> in_order;  // f32: ranks in order within a micro-batch, then micro-batches in order
  std::vector<double> exact, magnitude;
};
Expected expected_wild_gradients() {
  ToyModel model(0);
  Expected expected;
  for (const Parameter* p : parameters_of(model.units)) {
    for (int64_t i = 0; i < numel(p->full_shape); ++i) {
      float total = 0;
      double exact = 0, magnitude = 0;
      for (int m = 0; m < 3; ++m) {
        float sum = wild(0, m, *p, i);
        for (int rank = 1; rank < 4; ++rank) sum += wild(rank, m, *p, i);
        total += sum;
        for (int rank = 0; rank < 4; ++rank) {
          exact += static_cast<double>(wild(rank, m, *p, i));
          magnitude += std::fabs(static_cast<double>(wild(rank, m, *p, i)));
        }
      }
      expected.in_order.push_back(total);
      expected.exact.push_back(exact);
      expected.magnitude.push_back(magnitude);
    }
  }
  return expected;
}

TEST(Ddp, DeterministicBitsDependOnNeitherBucketNorOverlapNorTime) {
  const Expected expected = expected_wild_gradients();
  uint32_t seed = 0;
  for (int64_t bucket_bytes : kBucketBytes) {
    for (bool overlap : {false, true}) {
      const std::vector<float> gradients = wild_gradients(bucket_bytes, overlap, true, ++seed);
      ASSERT_EQ(gradients.size(), expected.in_order.size());
      EXPECT_EQ(std::memcmp(gradients.data(), expected.in_order.data(), gradients.size() * sizeof(float)), 0)
          << "bucket of " << bucket_bytes << " bytes, overlap " << overlap;
    }
  }
}

TEST(Ddp, SumsAreRightForEveryBucketWithOverlapAndWithout) {
  const Expected expected = expected_wild_gradients();
  uint32_t seed = 100;
  for (int64_t bucket_bytes : kBucketBytes) {
    for (bool overlap : {false, true}) {
      const std::vector<float> gradients = wild_gradients(bucket_bytes, overlap, false, ++seed);
      ASSERT_EQ(gradients.size(), expected.exact.size());
      for (size_t i = 0; i < gradients.size(); ++i) {
        // Twelve terms: at most eleven roundings of at most 2^-24 of the sum of their magnitudes.
        ASSERT_NEAR(static_cast<double>(gradients[i]), expected.exact[i], 11 * 0x1p-24 * expected.magnitude[i]);
      }
    }
  }
}

TEST(Ddp, CancellingSumHasOneResultOnAllRanks) {
  const float values[] = {1e8f, 1, -1e8f, 1};
  for (int round = 0; round < 50; ++round) {
    const bool deterministic = round % 2 == 0;
    std::vector<std::vector<float>> by_rank(4);
    test::run_ranks(
        4,
        [&](comm::World& world) {
          ToyModel model(world.rank());
          model.gradient = [&](const Parameter&, int64_t, int) { return values[world.rank()]; };
          Ddp ddp(model.units, world.memory(), world.group(), {round % 3 * int64_t{1000}, true, deterministic});
          const PhiloxBlock random =
              philox({7, static_cast<uint32_t>(round)}, {static_cast<uint32_t>(world.rank()), 0, 0, 0});
          std::this_thread::sleep_for(std::chrono::microseconds(random[0] % 1000));
          run_step(model, ddp, 1);
          by_rank[static_cast<size_t>(world.rank())] = gathered_gradients(model, ddp);
        },
        small_links(deterministic));
    for (const auto& gradients : by_rank) ASSERT_EQ(gradients, by_rank[0]);
    // In rank order: 1e8 + 1 = 1e8, - 1e8 = 0, + 1 = 1.
    if (deterministic) {
      ASSERT_EQ(by_rank[0], std::vector<float>(kToyElements, 1.0f));
    }
  }
}

// 16 rows in all, 8 a rank, cut into micro-batches in every way. Row r pulls every weight towards a target of its own:
// the loss is the mean over rows of (w - target)^2 / 2.
TEST(Ddp, MicroBatchesTimesRowsDoNotMatter) {
  const auto target = [](int row, int64_t element) { return std::sin(static_cast<double>(row * 31 + element)); };
  constexpr double kStart = 2, kLr = 0.3;
  for (int num_micro_batches : {1, 2, 4, 8}) {
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
      Ddp ddp(model.units, world.memory(), world.group(), {1024, true, false});
      ddp.load_values([](Parameter& p) { std::fill_n(p.value.data<float>(), p.value.numel(), float{kStart}); });
      kernels::Context context{*model.memory};
      for (int step = 0; step < 5; ++step) {
        ddp.begin_step(num_micro_batches);
        for (int m = 0; m < num_micro_batches; ++m) run_backward(model, ddp, m);
        for (const UpdateSegment& s : ddp.finish_gradients()) {
          kernels::sgd_update(context, float{kLr}, 1, 0, s.grad, s.value);
        }
        ddp.after_step();
        for (const Parameter* p : parameters_of(model.units)) {
          for (int64_t i = 0; i < p->value.numel(); ++i) {
            double mean = 0;
            for (int row = 0; row < 16; ++row) mean += target(row, i) / 16;
            const double before = mean + (kStart - mean) * std::pow(1 - kLr, step);
            ASSERT_NEAR(p->grad.data<float>()[i], before - mean, 2e-6);
            ASSERT_NEAR(p->value.data<float>()[i], mean + (kStart - mean) * std::pow(1 - kLr, step + 1), 2e-6);
          }
        }
      }
    });
  }
}

TEST(Ddp, PaddingIsInNoUpdateAndNoNorm) {
  test::run_ranks(4, [](comm::World& world) {
    ToyModel model(world.rank());
    model.gradient = [](const Parameter&, int64_t, int) { return 0.25f; };
    Ddp ddp(model.units, world.memory(), world.group(), {1024, true, false});
    ddp.load_values([](Parameter& p) { std::fill_n(p.value.data<float>(), p.value.numel(), 1.0f); });
    // The first bucket begins with head.gain and holds 681 elements, padded to 684.
    const Parameter& first = *parameters_of(model.units).back();
    float *values = first.value.data<float>(), *grads = first.grad.data<float>();
    kernels::Context context{*model.memory};
    const Tensor m = Tensor::zeros({kToyElements}, DType::F32, *model.memory, Category::Optimizer);
    const Tensor v = Tensor::zeros({kToyElements}, DType::F32, *model.memory, Category::Optimizer);
    for (int step = 1; step <= 10; ++step) {
      ddp.begin_step(1);
      run_backward(model, ddp, 0);
      const std::vector<UpdateSegment>& segments = ddp.finish_gradients();
      for (int pad = 681; pad < 684; ++pad) EXPECT_EQ(grads[pad], 0.0f);
      if (step == 5) grads[682] = 1e9f;
      EXPECT_EQ(train::gradient_sum_of_squares(context, segments, nullptr, train::NormOrder::Segments),
                static_cast<double>(kToyElements));
      for (const UpdateSegment& s : segments) {
        const int64_t n = s.value.numel();
        kernels::adamw_update(context, {.lr = 0.1f, .weight_decay = 0.1f, .step = step}, s.grad, s.value,
                              m.slice(s.state_offset, {n}), v.slice(s.state_offset, {n}));
      }
      for (int pad = 681; pad < 684; ++pad) EXPECT_EQ(values[pad], 0.0f);
      EXPECT_LT(values[680], 1.0f);
    }
  });
}

// ---- Communication -------------------------------------------------------------------------------------------------

TEST(Ddp, BytesSentAreTwoNMinusOneOverNOfThePaddedGradients) {
  for (int n : {2, 3, 4}) {
    for (int64_t bucket_bytes : {int64_t{0}, int64_t{1024}, int64_t{1} << 20}) {
      comm::WorldOptions options = small_links(false);
      options.algorithm = comm::Algorithm::Ring;
      // Padded to a multiple of n: each parameter, or the two buckets of 681 and 672 elements, or all of it.
      const auto padded = [n](int64_t count) { return (count + n - 1) / n * n; };
      int64_t elements = 0, num_buckets = 0;
      if (bucket_bytes == 0) {
        for (int64_t count : kToyParameters) elements += padded(count), ++num_buckets;
      } else if (bucket_bytes == 1024) {
        elements = padded(681) + padded(672), num_buckets = 2;
      } else {
        elements = padded(1353), num_buckets = 1;
      }
      test::run_ranks(
          n,
          [&](comm::World& world) {
            ToyModel model(world.rank());
            model.gradient = [](const Parameter&, int64_t, int) { return 1.0f; };
            Ddp ddp(model.units, world.memory(), world.group(), {bucket_bytes, true, false});
            for (int step = 0; step < 3; ++step) run_step(model, ddp, 2);
            const comm::CommRow row = row_of(world, "dp.grads");
            EXPECT_EQ(row.primitive, comm::Primitive::AllReduce);
            EXPECT_EQ(row.algorithm, comm::Algorithm::Ring);
            EXPECT_EQ(row.calls, 3 * num_buckets);
            EXPECT_EQ(row.sent_bytes, static_cast<uint64_t>(3 * 2 * (n - 1) * elements / n * 4));
          },
          options);
    }
  }
}

TEST(Ddp, OverlapStartsBucketsWhileBackwardGoesOn) {
  // Calls after the backward of head, h1, h0, embed (1, 2, 3, 2 parameters, each its own bucket) in two micro-batches.
  const struct {
    bool overlap, deterministic;
    std::vector<int64_t> calls;
  } cases[] = {{false, false, {0, 0, 0, 0, 0, 0, 0, 0}},
               {true, false, {0, 0, 0, 0, 1, 3, 6, 8}},
               {false, true, {0, 0, 0, 0, 8, 8, 8, 8}},
               {true, true, {1, 3, 6, 8, 9, 11, 14, 16}}};
  for (const auto& c : cases) {
    test::run_ranks(
        2,
        [&](comm::World& world) {
          ToyModel model(world.rank());
          model.gradient = [](const Parameter&, int64_t, int) { return 1.0f; };
          Ddp ddp(model.units, world.memory(), world.group(), {0, c.overlap, c.deterministic});
          std::vector<int64_t> calls;
          run_step(model, ddp, 2, [&] { calls.push_back(row_of(world, "dp.grads").calls); });
          EXPECT_EQ(calls, c.calls);
          EXPECT_EQ(row_of(world, "dp.grads").calls, c.deterministic ? 16 : 8);
        },
        small_links(c.deterministic));
  }
}

TEST(Ddp, GroupOfOneDoesNotCommunicate) {
  for (bool deterministic : {false, true}) {
    test::run_ranks(
        1,
        [&](comm::World& world) {
          ToyModel model(0);
          model.gradient = [](const Parameter&, int64_t, int m) { return static_cast<float>(m + 1); };
          Ddp ddp(model.units, world.memory(), world.group(), {1024, true, deterministic});
          ddp.load_values([](Parameter& p) { std::fill_n(p.value.data<float>(), p.value.numel(), 3.0f); });
          run_step(model, ddp, 3);
          EXPECT_EQ(gathered_gradients(model, ddp), std::vector<float>(kToyElements, 6.0f));
          EXPECT_EQ(parameters_of(model.units)[0]->value.data<float>()[0], 3.0f);
          check_replicas(model.units, ddp, world.group(), *model.memory, 1);
          EXPECT_TRUE(world.comm_table().rows().empty());
        },
        small_links(deterministic));
  }
}

TEST(Ddp, AllRanksStartFromTheValuesOfRankZero) {
  test::run_ranks(3, [&](comm::World& world) {
    ToyModel model(world.rank());
    Ddp ddp(model.units, world.memory(), world.group(), {1024, true, false});
    const auto fill = [&](Parameter& p) {
      for (int64_t i = 0; i < p.value.numel(); ++i) p.value.data<float>()[i] = wild(world.rank(), 0, p, i);
    };
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // nobody may go on without it
    ddp.load_values(fill);
    for (const Parameter* p : parameters_of(model.units)) {
      const Tensor whole = Tensor::empty(p->full_shape, DType::F32, *model.memory, Category::Other);
      ddp.gather_value(*p, whole);
      for (int64_t i = 0; i < whole.numel(); ++i) ASSERT_EQ(whole.data<float>()[i], wild(0, 0, *p, i));
    }
    EXPECT_EQ(row_of(world, "dp.params").primitive, comm::Primitive::Broadcast);
    EXPECT_EQ(row_of(world, "dp.params").calls, 2);
  });
}

TEST(Ddp, HoldsPaddedParametersAndGradientsOnce) {
  for (bool deterministic : {false, true}) {
    test::run_ranks(
        4,
        [&](comm::World& world) {
          const size_t parameters = world.memory().live_bytes(Category::Parameters);
          const size_t gradients = world.memory().live_bytes(Category::Gradients);
          ToyModel model(world.rank());
          Ddp ddp(model.units, world.memory(), world.group(), {1024, true, deterministic});
          const size_t padded_bytes = (684 + 672) * 4;  // 681 and 672 elements, to multiples of 4
          EXPECT_EQ(world.memory().live_bytes(Category::Parameters) - parameters, padded_bytes);
          EXPECT_EQ(world.memory().live_bytes(Category::Gradients) - gradients, padded_bytes * (deterministic ? 2 : 1));
        },
        small_links(deterministic));
  }
}

// ---- Misuse --------------------------------------------------------------------------------------------------------

TEST(Ddp, GradientsOutOfTurnAreNamed) {
  test::run_ranks(1, [](comm::World& world) {
    ToyModel model(0);
    model.gradient = [](const Parameter&, int64_t, int) { return 1.0f; };
    Ddp ddp(model.units, world.memory(), world.group(), {});
    Parameter& wte = *parameters_of(model.units)[0];

    ddp.begin_step(2);
    EXPECT_NE(message_of([&] { ddp.gradient_ready(wte, 0); }).find("embed.wte"), std::string::npos);
    EXPECT_THROW(ddp.before_backward(*model.units[0], 1), CheckError);  // 0 comes first
    run_backward(model, ddp, 0);
    EXPECT_NE(message_of([&] { ddp.gradient_ready(wte, 0); }).find("embed.wte"), std::string::npos);  // twice
    EXPECT_THROW(ddp.finish_gradients(), CheckError);  // micro-batch 1 is missing

    EXPECT_THROW(ddp.begin_step(0), CheckError);
  });
}

TEST(Ddp, TwoParametersOfOneNameAreNamed) {
  ToyModel a(0), b(0);
  UnitList units = a.units;
  units.push_back(b.units[2]);
  EXPECT_NE(message_of([&] { parameters_of(units); }).find("h1.w"), std::string::npos);
}

}  // namespace
}  // namespace sixfold::parallel
