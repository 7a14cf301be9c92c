#include "runtime/parallel/ddp.h"

#include "runtime/parallel/check_replicas.h"
#include "runtime/train/gradient_norm.h"
#include "tests/gradient_norm.h"
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
      EXPECT_EQ(test::gradient_sum_of_squares(context, segments, {}, kernels::SquareSums::ByTensor),
                static_cast<double>(kToyElements));
      for (const UpdateSegment& s : segments) {
        const int64_t n = s.value.numel();
        kernels::adamw_update(context, {.lr = 0.1f, .weight_decay = 0.1f, .step = step}, {}, s.grad, s.value,
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
          check_replicas(model.units, ddp, world.group(), nullptr, *model.memory, 1);
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
