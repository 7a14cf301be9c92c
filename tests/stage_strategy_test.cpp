// Strategies of pipeline stages, on units whose gradients are numbers that the test chooses.
#include "runtime/parallel/stage_strategy.h"

#include "runtime/parallel/mesh.h"
#include "runtime/parallel/pipeline_schedule.h"
#include "runtime/train/gradient_norm.h"
#include "tests/gradient_norm.h"
#include "tests/refusal.h"
#include "tests/toy_model.h"

namespace sixfold::parallel {
namespace {

std::vector<std::vector<std::string>> names_of(const std::vector<UnitList>& chunks) {
  std::vector<std::vector<std::string>> names;
  for (const UnitList& chunk : chunks) {
    auto& list = names.emplace_back();
    for (Unit* unit : chunk) list.push_back(unit->name());
  }
  return names;
}

TEST(StageUnits, FirstAndLastUnitGoWithTheLayers) {
  ToyModel model(0, /*tied=*/true);
  using Names = std::vector<std::vector<std::string>>;
  EXPECT_EQ(names_of(split_units(model.units, 1, 1)), (Names{{"embed", "h0", "h1", "head"}}));
  EXPECT_EQ(names_of(split_units(model.units, 2, 1)), (Names{{"embed", "h0"}, {"h1", "head"}}));
  test::expect_mentions(test::refusal([&] { split_units(model.units, 3, 1); }),
                        {"--layers 2", "--pp 3", "--pp 1 to 2"});
  // Two units have no layer between them, and one stage needs none.
  EXPECT_EQ(names_of(split_units({model.units[0], model.units[3]}, 1, 1)), (Names{{"embed", "head"}}));
  EXPECT_EQ(names_of(stage_chunks(model.units, 1, 2, 1)), (Names{{"h1", "head"}}));
}

TEST(StageUnits, TiedWeightsAreAPartOfTheirOwn) {
  ToyModel model(0, /*tied=*/true);
  const Parameter& wte = *model.units[0]->parameters()[0];
  for (int stage : {0, 1}) {
    const StageUnits units(model.units, stage, 2, 1);
    ASSERT_EQ(units.parts().size(), 2u);
    EXPECT_FALSE(units.parts()[0].tied);
    EXPECT_TRUE(units.parts()[1].tied);
    EXPECT_EQ(parameters_of(units.parts()[1].units), (std::vector<Parameter*>{units.tied()[0]}));
    EXPECT_EQ(units.tied(), (std::vector<Parameter*>{model.units[0]->parameters()[0]}));
    EXPECT_EQ(units.part_of(wte), 1);
    EXPECT_EQ(units.stage_of(wte), 0);
    EXPECT_EQ(units.tied_stages(), (std::pair{0, 1}));
    for (Unit* unit : units.parts()[0].units) EXPECT_TRUE(unit->borrowed_parameters().empty());
    EXPECT_EQ(units.part_of(*model.units[1]->parameters()[0]), stage == 0 ? 0 : -1);
  }
  // On one stage the head borrows what the same strategy has.
  const StageUnits one(model.units, 0, 1, 1);
  ASSERT_EQ(one.parts().size(), 1u);
  EXPECT_TRUE(one.tied().empty());
  EXPECT_EQ(one.parts()[0].units.back()->borrowed_parameters().size(), 1u);
}

/// embed.w [1], h0.w [4], h1.w [2], head.gain [1] on pp 2 x dp 2; the head borrows embed.w.
struct TiedScalar {
  Gradient gradient;
  std::vector<std::unique_ptr<ToyUnit>> owned;
  UnitList units;

  TiedScalar() {
    using Shapes = std::vector<std::pair<std::string, Shape>>;
    for (const auto& [name, shapes] : {std::pair{"embed", Shapes{{"w", {1}}}}, std::pair{"h0", Shapes{{"w", {4}}}},
                                       std::pair{"h1", Shapes{{"w", {2}}}}, std::pair{"head", Shapes{{"gain", {1}}}}}) {
      owned.push_back(std::make_unique<ToyUnit>(name, shapes, false, &gradient));
      units.push_back(owned.back().get());
    }
    owned.back()->borrow(*units[0]->parameters()[0]);
  }
};

// One scalar, used by the first and the last stage. Their gradients are 1 and 3, and 10 and 30, on the two
// data-parallel ranks; scaled by 1/2, since the runtime sums.
TEST(StageStrategy, TiedGradientsAreSummedBeforeAnySharding) {
  for (int zero : {0, 1, 2, 3}) {
    for (int m : {1, 2}) {
      for (bool deterministic : {false, true}) {
        SCOPED_TRACE("zero " + std::to_string(zero) + ", micro-batches " + std::to_string(m));
        StrategyOptions options;
        options.zero = zero;
        options.deterministic = deterministic;
        test::run_ranks(4, [&](comm::World& world) {
          Mesh mesh(world.group(), {2, 2, 1, 1});
          const int stage = mesh.coordinates().pp, dp = mesh.coordinates().dp;
          TiedScalar model;
          const float tied[2][2] = {{0.5f, 1.5f}, {5, 15}};
          model.gradient = [&](const Parameter& p, int64_t, int) {
            return (p.name == "embed.w" ? tied[stage][dp] : 1.5f) / static_cast<float>(m);
          };
          const StageUnits units(model.units, stage, 2, 1);
          StageStrategy strategy(units, world.memory(), mesh.pp_group(), mesh.dp_group(), options);
          for (int step = 0; step < 2; ++step) {
            strategy.begin_step(m);
            kernels::Context context{world.memory()};
            for (int i = 0; i < m; ++i) {
              MicroBatch batch;
              batch.sample_index = {i};
              Saved saved;
              const UnitList& chunk = units.chunks()[0];
              for (Unit* unit : chunk) {
                strategy.before_forward(*unit, i);
                strategy.after_forward(*unit, i);
              }
              for (size_t u = chunk.size(); u-- > 0;) {
                strategy.before_backward(*chunk[u], i);
                chunk[u]->backward_weights(context, batch, saved, [&](Parameter& p) { strategy.gradient_ready(p, i); });
                strategy.after_backward(*chunk[u], i);
              }
            }
            const auto& segments = strategy.finish_gradients();
            // 22, and 3 for each of the seven others: 484 + 63.
            for (const kernels::SquareSums how : test::kSquareSums) {
              EXPECT_EQ(test::gradient_sum_of_squares(context, segments,
                                                      {strategy.shard_group(), nullptr, &mesh.pp_group()}, how),
                        484 + 7 * 9);
            }
            for (Unit* unit : model.units) {
              for (const Parameter* p : unit->parameters()) {
                const Tensor whole = Tensor::empty(p->full_shape, DType::F32, world.memory(), Category::Other);
                strategy.gather_gradient(*p, whole);
                for (int64_t i = 0; i < whole.numel(); ++i) {
                  EXPECT_EQ(whole.data<float>()[i], p->name == "embed.w" ? 22 : 3) << p->name;
                }
              }
            }
            strategy.after_step();
          }
        });
      }
    }
  }
}

TEST(StageStrategy, LoadsAndGathersEveryParameterOnEveryRank) {
  for (int zero : {0, 1, 2, 3}) {
    StrategyOptions options;
    options.zero = zero;
    test::run_ranks(4, [&](comm::World& world) {
      Mesh mesh(world.group(), {2, 2, 1, 1});
      ToyModel model(world.rank(), /*tied=*/true);
      const StageUnits units(model.units, mesh.coordinates().pp, 2, 1);
      StageStrategy strategy(units, world.memory(), mesh.pp_group(), mesh.dp_group(), options);
      strategy.load_values([](Parameter& p) {
        for (int64_t i = 0; i < p.value.numel(); ++i) p.value.data<float>()[i] = wild(0, 0, p, i);
      });
      // Every element of optimizer state is its own place on this rank, and the stage's.
      const Tensor moment = Tensor::empty({strategy.state_elements()}, DType::F32, world.memory(), Category::Optimizer);
      std::fill_n(moment.data<float>(), moment.numel(), static_cast<float>(mesh.coordinates().pp + 1));
      for (const Parameter* p : parameters_of(model.units)) {
        const Tensor whole = Tensor::empty(p->full_shape, DType::F32, world.memory(), Category::Other);
        strategy.gather_value(*p, whole);
        for (int64_t i = 0; i < whole.numel(); ++i) ASSERT_EQ(whole.data<float>()[i], wild(0, 0, *p, i)) << p->name;
        strategy.gather_moment(*p, moment, whole);
        for (int64_t i = 0; i < whole.numel(); ++i) {
          ASSERT_EQ(whole.data<float>()[i], units.stage_of(*p) + 1) << p->name;
        }
      }
    });
  }
}

}  // namespace
}  // namespace sixfold::parallel
