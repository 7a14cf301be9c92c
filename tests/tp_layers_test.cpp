// Each layer that tensor parallelism cuts, forward and backward, beside the same layer on one rank: 2, 3 and 4 ranks,
// odd sizes, with Megatron's sequence parallelism and without.
#include "runtime/parallel/tp_layers.h"

#include "runtime/parallel/ulysses.h"
#include "tests/numbers.h"
#include "tests/tp_fixture.h"

namespace sixfold::parallel {
namespace {

constexpr int64_t kIn = 7;

TEST(TpLayers, ColumnParallelLinear) {
  for_each_tp_group(2, [](comm::World& world, const TpGroup& tp, const MicroBatch& batch) {
    Memory& memory = world.memory();
    kernels::Context context{memory};
    const int64_t out = 3 * 5 * tp.size(), rows = batch.tokens.numel();
    ColumnParallelLinear whole("w", kIn, out, 3, 0.5f, {}, "tp.test"), cut("w", kIn, out, 3, 0.5f, tp, "tp.test");
    for (ColumnParallelLinear* layer : {&whole, &cut}) {
      for (Parameter* parameter : layer->parameters()) place(*parameter, memory);
    }
    const Tensor x = normal_tensor(memory, {rows, kIn}, "x"), dy = normal_tensor(memory, {rows, out}, "dy");
    const Tensor own_x = rows_between(memory, tp, batch, x), own_dy = piece_of(memory, dy, tp.cut(1, 3));

    expect_close(cut.forward(context, own_x, batch), piece_of(memory, whole.forward(context, x, batch), tp.cut(1, 3)),
                 "y");
    Arriving input = cut.gather_input(context, own_x, batch);
    Arriving dx = cut.backward_input(context, own_dy, batch);
    cut.add_gradients(context, input.wait(), own_dy);
    whole.add_gradients(context, x, dy);
    expect_close(dx.wait(), rows_between(memory, tp, batch, whole.backward_input(context, dy, batch).wait()), "dx");
    for (size_t i = 0; i < 2; ++i) {
      const Parameter& parameter = *cut.parameters()[i];
      EXPECT_EQ(parameter.shard.count, tp.size());
      expect_close(parameter.grad, piece_of(memory, whole.parameters()[i]->grad, parameter.shard), parameter.name);
    }
  });
}

TEST(TpLayers, RowParallelLinear) {
  for_each_tp_group(2, [](comm::World& world, const TpGroup& tp, const MicroBatch& batch) {
    Memory& memory = world.memory();
    kernels::Context context{memory};
    const int64_t in = 5 * tp.size(), out = 9, rows = batch.tokens.numel();
    RowParallelLinear whole("w", in, out, 0.5f, {}, "tp.test"), cut("w", in, out, 0.5f, tp, "tp.test");
    for (RowParallelLinear* layer : {&whole, &cut}) {
      for (Parameter* parameter : layer->parameters()) place(*parameter, memory);
    }
    const Tensor x = normal_tensor(memory, {rows, in}, "x"), dy = normal_tensor(memory, {rows, out}, "dy");
    const Tensor own_x = piece_of(memory, x, tp.cut(1));

    expect_close(cut.forward(context, own_x, batch), rows_between(memory, tp, batch, whole.forward(context, x, batch)),
                 "y");
    const Tensor dy_of_all = cut.gather_gradient(context, rows_between(memory, tp, batch, dy), batch);
    expect_close(cut.backward_input(context, dy_of_all), piece_of(memory, whole.backward_input(context, dy), tp.cut(1)),
                 "dx");
    cut.add_gradients(context, own_x, dy_of_all);
    whole.add_gradients(context, x, dy);
    for (size_t i = 0; i < 2; ++i) {  // the bias: whole and complete on every rank
      const Parameter& parameter = *cut.parameters()[i];
      expect_close(parameter.grad, piece_of(memory, whole.parameters()[i]->grad, parameter.shard), parameter.name);
    }
  });
}

TEST(TpLayers, VocabParallelEmbedding) {
  constexpr int64_t kVocab = 11, kWidth = 5;
  for_each_tp_group(kVocab, [](comm::World& world, const TpGroup& tp, const MicroBatch& batch) {
    Memory& memory = world.memory();
    kernels::Context context{memory};
    const int64_t padded = (kVocab + tp.size() - 1) / tp.size() * tp.size();
    VocabParallelEmbedding whole("wte", kVocab, padded, kWidth, 0.5f, {}), cut("wte", kVocab, padded, kWidth, 0.5f, tp);
    place(whole.weight(), memory);
    place(cut.weight(), memory);
    EXPECT_EQ(whole.weight().file_shape(), (Shape{kVocab, kWidth}));
    const Tensor dy = normal_tensor(memory, {batch.tokens.numel(), kWidth}, "dy");
    expect_close(cut.forward(context, batch), rows_between(memory, tp, batch, whole.forward(context, batch)), "y");
    cut.backward_weights(context, batch, rows_between(memory, tp, batch, dy));
    whole.backward_weights(context, batch, dy);
    expect_close(cut.weight().grad, piece_of(memory, whole.weight().grad, tp.cut(0)), "dw");
  });
}

/// The table of an embedding, whole and cut, and logits by it.
struct Heads {
  Heads(Memory& memory, const TpGroup& tp, int64_t vocab, int64_t width)
      : padded((vocab + tp.size() - 1) / tp.size() * tp.size()),
        whole_table("wte", vocab, padded, width, 0.5f, {}),
        cut_table("wte", vocab, padded, width, 0.5f, tp),
        whole(whole_table.weight(), vocab, {}),
        cut(cut_table.weight(), vocab, tp) {
    place(whole.weight(), memory);
    place(cut.weight(), memory);
  }
  const int64_t padded;
  VocabParallelEmbedding whole_table, cut_table;
  VocabParallelLogits whole, cut;
};

TEST(TpLayers, VocabParallelLogitsAndLoss) {
  constexpr int64_t kVocab = 13, kWidth = 5;
  for_each_tp_group(kVocab, [](comm::World& world, const TpGroup& tp, const MicroBatch& batch) {
    Memory& memory = world.memory();
    kernels::Context context{memory};
    Heads heads(memory, tp, kVocab, kWidth);
    const Tensor x = normal_tensor(memory, {batch.tokens.numel(), kWidth}, "x");
    const Tensor own_x = rows_between(memory, tp, batch, x);
    const Tensor logits = heads.whole.forward(context, x, batch), own_logits = heads.cut.forward(context, own_x, batch);
    expect_close(own_logits, piece_of(memory, logits, tp.cut(1)), "logits");
    VocabParallelLogits::Statistics of_whole, of_cut;
    const double loss = heads.whole.loss(context, logits, batch, of_whole).data<float>()[0];
    EXPECT_NEAR(heads.cut.loss(context, own_logits, batch, of_cut).data<float>()[0], loss, 1e-6 * loss);
    heads.whole.loss_backward(context, batch.targets, of_whole, test::number(memory, 0.25f), logits);
    heads.cut.loss_backward(context, batch.targets, of_cut, test::number(memory, 0.25f), own_logits);
    expect_close(own_logits, piece_of(memory, logits, tp.cut(1)), "dlogits");
    Arriving input = heads.cut.gather_input(context, own_x, batch);
    Arriving dx = heads.cut.backward_input(context, own_logits, batch);
    heads.cut.add_gradients(context, input.wait(), own_logits);
    heads.whole.add_gradients(context, x, logits);
    const Tensor dx_of_whole = heads.whole.backward_input(context, logits, batch).wait();
    expect_close(dx.wait(), rows_between(memory, tp, batch, dx_of_whole), "dx");
    expect_close(heads.cut.weight().grad, piece_of(memory, heads.whole.weight().grad, tp.cut(0)), "dw");

    MicroBatch sampling = batch;
    sampling.training = false;
    sampling.all_positions = true;
    const Tensor some = normal_tensor(memory, {2, kWidth}, "some");
    expect_close(heads.cut.whole_logits(context, some, sampling), heads.whole.forward(context, some, sampling), "some");
  });
}

// 11 tokens, padded to 12 on two ranks: zero logits give each of 11 the probability 1/11, and no gradient reaches row
// 11.
TEST(TpLayers, PaddingHasNoProbabilityAndNoGradient) {
  test::run_ranks(2, [](comm::World& world) {
    const TpGroup tp(&world.group());
    Memory& memory = world.memory();
    kernels::Context context{memory};
    TpBatch rows(memory, 4, 11);
    Heads heads(memory, tp, 11, 3);
    heads.cut.weight().value.zero();
    const Tensor x = normal_tensor(memory, {rows.num_rows(), 3}, "x");
    const Tensor logits = heads.cut.forward(context, x, rows.batch);
    VocabParallelLogits::Statistics statistics;
    const double loss = heads.cut.loss(context, logits, rows.batch, statistics).data<float>()[0];
    EXPECT_NEAR(loss / 9, std::log(11.0), 1e-6);  // 12 rows, every fourth masked
    EXPECT_NEAR(loss / 9, 2.3979, 1e-4);
    heads.cut.loss_backward(context, rows.batch.targets, statistics, test::number(memory, 1), logits);
    heads.cut.add_gradients(context, x, logits);
    const Tensor& gradient = heads.cut.weight().grad;
    for (int64_t c = 0; c < 3; ++c) {
      EXPECT_NE(gradient.data<float>()[c], 0);
      const float last_row = gradient.data<float>()[5 * 3 + c];  // 5 or 11
      EXPECT_EQ(last_row == 0, tp.rank() == 1);
    }
  });
}

TEST(TpLayers, InitialValuesAreThoseOfOneRankAndPaddingIsZero) {
  test::run_ranks(3, [](comm::World& world) {
    const TpGroup tp(&world.group());
    Memory& memory = world.memory();
    VocabParallelEmbedding whole("wte", 11, 11, 2, 0.5f, {}), cut("wte", 11, 12, 2, 0.5f, tp);
    place(whole.weight(), memory);
    place(cut.weight(), memory);
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t global = tp.rank() * 8 + i;
      const float expected = global < 22 ? whole.weight().value.data<float>()[global] : 0.0f;
      EXPECT_EQ(cut.weight().value.data<float>()[i], expected);
    }
  });
}

// Attention over all positions, whoever has them.
TEST(TpLayers, UlyssesAttention) {
  for (int n = 2; n <= 4; ++n) {
    test::run_ranks(n, [](comm::World& world) {
      Memory& memory = world.memory();
      kernels::Context context{memory};
      const int64_t size = world.size(), heads = 2 * size, width = 3 * heads;
      TpBatch whole_rows(memory, 5 * size, 2);
      const MicroBatch& batch = whole_rows.batch;
      const TpGroup positions(&world.group(), {.sequence_parallel = true});  // who has which rows
      MicroBatch own = batch;
      own.seq_len = 5;
      own.seq_offset = 5 * world.rank();
      const UlyssesAttention whole(heads, nullptr), cut(heads, &world.group());
      const Tensor qkv = normal_tensor(memory, {whole_rows.num_rows(), 3 * width}, "qkv");
      const Tensor dout = normal_tensor(memory, {whole_rows.num_rows(), width}, "dout");
      UlyssesAttention::Kept of_whole, of_cut;
      const Tensor out = whole.forward(context, qkv, batch, of_whole);
      const Tensor own_out = cut.forward(context, rows_between(memory, positions, batch, qkv), own, of_cut);
      expect_close(own_out, rows_between(memory, positions, batch, out), "out");
      const Tensor dqkv = whole.backward(context, dout, batch, of_whole);
      const Tensor own_dqkv = cut.backward(context, rows_between(memory, positions, batch, dout), own, of_cut);
      expect_close(own_dqkv, rows_between(memory, positions, batch, dqkv), "dqkv");
    });
  }
}

}  // namespace
}  // namespace sixfold::parallel
