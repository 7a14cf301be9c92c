// Recomputed blocks and frozen parameters of a Gpt: the gradients, bit for bit, and what is left out.
#include "runtime/parallel/recompute.h"

#include <cstring>

#include "tests/gpt_fixture.h"

namespace sixfold {
namespace {

using test::PlacedGpt;
using test::TokenBatch;

models::GptConfig small(bool recompute, int64_t num_layers = 3) {
  models::GptConfig config;
  config.num_layers = num_layers;
  config.num_heads = 2;
  config.dim = 16;
  config.seq_len = 12;
  config.vocab_size = 13;
  config.dropout = 0.3f;
  config.recompute = recompute;
  return config;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.numel() == b.numel() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST(Recompute, GivesTheSameBitsWithTwoMicroBatchesInFlight) {
  std::vector<std::unique_ptr<PlacedGpt>> gpts;
  double losses[2] = {0, 0};
  for (const bool recompute : {false, true}) {
    PlacedGpt& gpt = *gpts.emplace_back(std::make_unique<PlacedGpt>(small(recompute)));
    TokenBatch tokens(4, 12, 13, 5);
    parallel::MicroBatch first = tokens.rows(0, 2), second = tokens.rows(2, 2);
    first.step = second.step = 7;
    std::vector<parallel::Saved> saved[2];
    losses[recompute] = gpt.forward(first, saved[0]) + gpt.forward(second, saved[1]);
    for (size_t u = 1; u <= 3; ++u) {
      EXPECT_EQ(saved[0][u].tensors.size() == 1, recompute);  // the input alone
    }
    gpt.backward(first, saved[0], 0.1);
    gpt.backward(second, saved[1], 0.1);
  }
  EXPECT_EQ(losses[0], losses[1]);
  for (size_t i = 0; i < gpts[0]->parameters.size(); ++i) {
    EXPECT_TRUE(same_bits(gpts[0]->parameters[i]->grad, gpts[1]->parameters[i]->grad)) << gpts[0]->parameters[i]->name;
  }
  EXPECT_EQ(gpts[0]->loss(TokenBatch(2, 12, 13, 9).all()), gpts[1]->loss(TokenBatch(2, 12, 13, 9).all()));
}

// A layer more costs its input, 16 channels a token row, instead of the 16 x 16 that the whole block keeps.
TEST(Recompute, KeepsOneInputABlock) {
  const auto peak_after_forward = [](bool recompute, int64_t num_layers) {
    PlacedGpt gpt(small(recompute, num_layers));
    TokenBatch tokens(4, 12, 13, 5);
    std::vector<parallel::Saved> saved;
    gpt.forward(tokens.all(), saved);
    return gpt.memory.live_bytes(Category::Activations);
  };
  constexpr size_t kRowBytes = 16 * 4, kRows = 4 * 12;
  EXPECT_EQ(peak_after_forward(true, 4) - peak_after_forward(true, 3), kRows * kRowBytes);
  EXPECT_GT(peak_after_forward(false, 4) - peak_after_forward(false, 3), 15 * kRows * kRowBytes);
}

// Each kind of parameter in turn: its gradient is not touched and not reported, all others are the same bits.
TEST(Frozen, GradientsAreLeftOutAndTheOthersStay) {
  PlacedGpt whole(small(false));
  TokenBatch tokens(4, 12, 13, 5);
  whole.forward_backward(tokens.all(), 0.1);
  for (const char* name : {"wte.weight", "wpe.weight", "h.1.ln_1.weight", "h.1.ln_1.bias", "h.0.attn.c_attn.weight",
                           "h.2.mlp.c_proj.bias", "ln_f.weight"}) {
    PlacedGpt gpt(small(false));
    parallel::Parameter& frozen = gpt.parameter(name);
    frozen.frozen = true;
    frozen.grad = {};
    std::vector<parallel::Saved> saved;
    gpt.forward(tokens.all(), saved);
    size_t num_ready = 0;
    gpt.backward(tokens.all(), saved, 0.1, [&](parallel::Parameter& p) {
      EXPECT_NE(p.name, name);
      ++num_ready;
    });
    EXPECT_EQ(num_ready, gpt.parameters.size() - 1);
    for (size_t i = 0; i < gpt.parameters.size(); ++i) {
      if (gpt.parameters[i] == &frozen) continue;
      EXPECT_TRUE(same_bits(gpt.parameters[i]->grad, whole.parameters[i]->grad)) << gpt.parameters[i]->name;
    }
  }
}

}  // namespace
}  // namespace sixfold
