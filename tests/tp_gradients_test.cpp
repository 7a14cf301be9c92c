// Gradients of parameters that tensor-parallel ranks have alike: summed where ranks had other positions, counted once
// in the norm, with every strategy; and whole tensors from pieces.
#include "runtime/parallel/tp_gradients.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>

#include "models/layers.h"
#include "runtime/parallel/check_replicas.h"
#include "runtime/parallel/mesh.h"
#include "runtime/train/gradient_norm.h"
#include "tests/gradient_norm.h"
#include "tests/toy_model.h"
#include "tests/tp_fixture.h"

namespace sixfold::parallel {
namespace {

/// A replicated parameter of one element and one of two elements that two tensor-parallel ranks cut.
class Pair final : public Unit {
 public:
  Pair(const TpGroup& tp, bool partial)
      : replicated_(make_parameter("replicated", {1}, {}, {}, false)),
        cut_(make_parameter("cut", {2}, tp.cut(0), {}, false)) {
    replicated_.partial = partial;
  }
  const std::string& name() const override { return name_; }
  std::vector<Parameter*> parameters() override { return {&replicated_, &cut_}; }
  Tensor forward(kernels::Context&, const Tensor& x, const MicroBatch&, Saved&) override { return x; }
  Tensor backward_input(kernels::Context&, const Tensor& dy, const MicroBatch&, Saved&) override { return dy; }
  void backward_weights(kernels::Context&, const MicroBatch&, Saved&, const GradientReady& ready) override {
    replicated_.grad.data<float>()[0] += replicated_gradient;
    cut_.grad.data<float>()[0] += cut_gradient;
    ready(replicated_);
    ready(cut_);
  }

  float replicated_gradient = 0, cut_gradient = 0;

 private:
  const std::string name_ = "pair";
  Parameter replicated_, cut_;
};

// Sums over dp: replicated 3, cut 0 and 4. The norm is 5 on every rank: 5.83 counts the replica twice.
TEST(TpGradients, NormCountsReplicatedParametersOnce) {
  for (const bool partial : {false, true}) {
    for (int zero = 0; zero <= 3; ++zero) {
      test::run_ranks(4, [&](comm::World& world) {
        Mesh mesh(world.group(), {1, 2, 1, 2});
        const TpGroup tp(&mesh.tp_group(), {.sequence_parallel = partial});
        Pair pair(tp, partial);
        StrategyOptions options;
        options.zero = zero;
        const UnitList units = {&pair};
        const auto strategy = make_strategy(units, world.memory(), mesh.data_group(), options);
        strategy->load_values([](Parameter& parameter) { parameter.value.zero(); });
        // Rank (dp, tp): a half each; where they are parts, 1 and 2 of the 3.
        pair.replicated_gradient = (partial ? 1.0f + static_cast<float>(tp.rank()) : 3.0f) / 2;
        pair.cut_gradient = tp.rank() == 0 ? 0.0f : 2.0f;
        kernels::Context context{world.memory()};
        Saved saved;
        strategy->begin_step(1);
        strategy->before_forward(pair, 0);
        strategy->after_forward(pair, 0);
        strategy->before_backward(pair, 0);
        pair.backward_weights(context, {}, saved, [&](Parameter& p) { strategy->gradient_ready(p, 0); });
        strategy->after_backward(pair, 0);
        const std::vector<UpdateSegment>& segments = strategy->finish_gradients();
        sum_partial_gradients(segments, &mesh.tp_group(), world.memory());
        for (const kernels::SquareSums how : test::kSquareSums) {
          const double sum =
              test::gradient_sum_of_squares(context, segments, {strategy->shard_group(), &mesh.tp_group()}, how);
          EXPECT_EQ(sum, 25.0) << "--zero " << zero;
        }
        const Tensor whole = Tensor::empty({1}, DType::F32, world.memory(), Category::Other);
        strategy->gather_gradient(*pair.parameters()[0], whole);
        EXPECT_EQ(whole.data<float>()[0], 3.0f);
        const bool has_part = std::any_of(segments.begin(), segments.end(), [](const auto& s) { return s.partial; });
        EXPECT_EQ(total_of(world, "tp.grads").calls, has_part ? 1 : 0);
        strategy->after_step();
      });
    }
  }
}

// Four tokens whose gradients for a LayerNorm are 1, 2, 3, 4, two on each rank: 10 on both, not 3 and 7.
TEST(TpGradients, LayerNormSumsOverPositions) {
  test::run_ranks(2, [](comm::World& world) {
    Memory& memory = world.memory();
    kernels::Context context{memory};
    const TpGroup tp(&world.group(), {.sequence_parallel = true});
    models::LayerNorm norm("ln", 2, tp);
    std::vector<UpdateSegment> segments;
    for (Parameter* parameter : norm.parameters()) {
      place(*parameter, memory);
      EXPECT_TRUE(parameter->partial);
      segments.push_back({parameter->value, parameter->grad, false, 0, true, parameter->partial});
    }
    const Tensor x = Tensor::empty({2, 2}, DType::F32, memory, Category::Other);
    const Tensor dy = Tensor::empty({2, 2}, DType::F32, memory, Category::Other);
    for (int64_t row = 0; row < 2; ++row) {
      const auto token = static_cast<float>(2 * tp.rank() + row + 1);
      for (int64_t c = 0; c < 2; ++c) {
        x.data<float>()[2 * row + c] = c == 0 ? 1.0f : -1.0f;  // normalised: 1 and -1, but for epsilon
        dy.data<float>()[2 * row + c] = c == 0 ? token : -token;
      }
    }
    Tensor statistics;
    norm.forward(context, x, statistics);
    norm.backward_weights(context, dy, x, statistics, [](Parameter&) {});
    sum_partial_gradients(segments, &world.group(), memory);
    const float* gain = norm.parameters()[0]->grad.data<float>();
    const float* bias = norm.parameters()[1]->grad.data<float>();
    EXPECT_NEAR(gain[0], 10, 1e-4);
    EXPECT_NEAR(gain[1], 10, 1e-4);
    EXPECT_EQ(bias[0], 10.0f);
    EXPECT_EQ(bias[1], -10.0f);
    EXPECT_EQ(
        test::gradient_sum_of_squares(context, segments, {nullptr, &world.group()}, kernels::SquareSums::ByElement),
        static_cast<double>(gain[0]) * gain[0] + static_cast<double>(gain[1]) * gain[1] + 200);
  });
}

TEST(TpGradients, AssemblesWholeTensorsWithoutPadding) {
  for (int n = 1; n <= 4; ++n) {
    test::run_ranks(n, [](comm::World& world) {
      const TpGroup tp(&world.group());
      const Shape full = {5, 3 * 4 * world.size()};
      Parameter fused = make_parameter("fused", full, tp.cut(1, 3), {}, true);
      Parameter table = make_parameter("table", {2 * world.size(), 3}, tp.cut(0), {}, true);
      table.num_padding_rows = 1;
      for (Parameter* parameter : {&fused, &table}) {
        const Tensor piece = Tensor::empty(parameter->local_shape(), DType::F32, world.memory(), Category::Other);
        for (int64_t i = 0; i < piece.numel(); ++i) {
          piece.data<float>()[i] = static_cast<float>(parameter->shard.global_index(parameter->full_shape, i));
        }
        const Tensor whole = assemble(*parameter, piece, &world.group(), world.memory());
        ASSERT_EQ(whole.shape(), parameter->file_shape());
        for (int64_t i = 0; i < whole.numel(); ++i) EXPECT_EQ(whole.data<float>()[i], static_cast<float>(i));
      }
    });
  }
}

// What tensor parallelism does not cut has to stay equal over its ranks; what it cuts differs.
TEST(TpGradients, CheckFindsReplicasThatDrift) {
  test::run_ranks(4, [](comm::World& world) {
    Mesh mesh(world.group(), {1, 2, 1, 2});
    Pair pair(TpGroup(&mesh.tp_group()), false);
    const UnitList units = {&pair};
    const auto strategy = make_strategy(units, world.memory(), mesh.data_group(), {});
    const auto rank = static_cast<float>(mesh.tp_group().rank());
    strategy->load_values([&](Parameter& p) { p.value.data<float>()[0] = p.name == "cut" ? rank : 1.0f; });
    const auto check = [&] {
      check_replicas(units, *strategy, mesh.data_group(), &mesh.tp_group(), world.memory(), 3);
    };
    EXPECT_EQ(message_of(check), "nothing was thrown");
    const std::vector<float> whole = {0, 1, 1};  // cut, replicated
    EXPECT_EQ(hash_weights(units, *strategy, {}, &mesh.tp_group(), world.memory()), XXH3_64bits(whole.data(), 12));
    // On both ranks of tp 1, so that the ranks of dp agree.
    if (mesh.tp_group().rank() == 1) pair.parameters()[0]->value.data<float>()[0] = std::nextafter(1.0f, 2.0f);
    const std::string message = message_of(check);
    const std::string rank_of_other = "rank " + std::to_string(mesh.tp_group().world_rank(1));
    for (const char* part : {"step 3", rank_of_other.c_str(), "replicated"}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    }
  });
}

}  // namespace
}  // namespace sixfold::parallel
