// What a Gpt promises beside its numbers: names, counts, order of gradients, memory, errors, sampling.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/sample.h"
#include "tests/gpt_fixture.h"
#include "tests/harness.h"

namespace sixfold {
namespace {

using models::Gpt;
using models::GptConfig;
using test::PlacedGpt;
using test::TokenBatch;

constexpr GptConfig kTiny = {.num_layers = 2, .num_heads = 4, .dim = 16, .seq_len = 12, .vocab_size = 13};

// ---- Parameters ----------------------------------------------------------------------------------------------------

TEST(GptParameters, AreThoseOfGpt2Small) {
  const Gpt gpt({.num_layers = 12, .num_heads = 12, .dim = 768, .seq_len = 1024, .vocab_size = 50257});
  EXPECT_EQ(gpt.num_parameters(), 124439808);  // published as 124M
  // 6 x (124439808 - 1024 x 768) + 12 x 12 x 768 x 1024
  EXPECT_EQ(gpt.flops_per_token(1024), 741920256 + 113246208);
  EXPECT_EQ(gpt.parameters_by_name().size(), 2u + 12 * 12 + 2);
}

TEST(GptParameters, HaveHuggingFacesNamesAndShapes) {
  GptConfig config = kTiny;
  config.num_layers = 1;
  const Gpt gpt(config);
  std::map<std::string, Shape> shapes;
  for (const auto* p : gpt.parameters_by_name()) {
    shapes[p->name] = p->full_shape;
    EXPECT_EQ(p->decay, p->full_shape.size() == 2) << p->name;
    EXPECT_EQ(p->local_shape(), p->full_shape) << p->name;
  }
  EXPECT_EQ(shapes, (std::map<std::string, Shape>{{"wte.weight", {13, 16}},
                                                  {"wpe.weight", {12, 16}},
                                                  {"h.0.ln_1.weight", {16}},
                                                  {"h.0.ln_1.bias", {16}},
                                                  {"h.0.attn.c_attn.weight", {16, 48}},
                                                  {"h.0.attn.c_attn.bias", {48}},
                                                  {"h.0.attn.c_proj.weight", {16, 16}},
                                                  {"h.0.attn.c_proj.bias", {16}},
                                                  {"h.0.ln_2.weight", {16}},
                                                  {"h.0.ln_2.bias", {16}},
                                                  {"h.0.mlp.c_fc.weight", {16, 64}},
                                                  {"h.0.mlp.c_fc.bias", {64}},
                                                  {"h.0.mlp.c_proj.weight", {64, 16}},
                                                  {"h.0.mlp.c_proj.bias", {16}},
                                                  {"ln_f.weight", {16}},
                                                  {"ln_f.bias", {16}}}));
}

TEST(GptParameters, ResidualProjectionsStartSmaller) {
  const Gpt gpt({.num_layers = 8, .num_heads = 2, .dim = 8, .seq_len = 4, .vocab_size = 5});
  for (const auto* p : gpt.parameters_by_name()) {
    const bool norm = p->name.find("ln_") != std::string::npos, matrix = p->full_shape.size() == 2;
    const bool residual = matrix && p->name.find("c_proj") != std::string::npos;
    EXPECT_FLOAT_EQ(p->init.std, residual ? 0.005f : matrix ? 0.02f : 0.0f) << p->name;  // 0.02 / sqrt(2 * 8)
    EXPECT_EQ(p->init.constant, norm && p->name.find(".weight") != std::string::npos ? 1.0f : 0.0f) << p->name;
  }
}

// ---- Backward ------------------------------------------------------------------------------------------------------

TEST(GptBackward, ReportsEachGradientOnceWhenItIsComplete) {
  PlacedGpt gpt(kTiny);
  TokenBatch batch(2, 12, 13, 1);
  std::vector<parallel::Saved> saved;
  gpt.forward(batch.all(), saved);
  std::vector<std::string> order;
  std::map<std::string, std::vector<float>> when_ready;
  gpt.backward(batch.all(), saved, 1, [&](parallel::Parameter& p) {
    order.push_back(p.name);
    const float* g = p.grad.data<float>();
    when_ready[p.name].assign(g, g + p.grad.numel());
  });
  std::vector<std::string> reverse;  // of the order of use
  for (auto unit = gpt.units.rbegin(); unit != gpt.units.rend(); ++unit) {
    const auto parameters = (*unit)->parameters();
    for (auto p = parameters.rbegin(); p != parameters.rend(); ++p) reverse.push_back((*p)->name);
  }
  EXPECT_EQ(order, reverse);
  EXPECT_EQ(order.back(), "wte.weight");  // tied: the head has used it, too
  EXPECT_EQ(std::set<std::string>(order.begin(), order.end()).size(), gpt.parameters.size());
  for (const auto* p : gpt.parameters) {
    const float* g = p->grad.data<float>();
    EXPECT_EQ(when_ready[p->name], std::vector<float>(g, g + p->grad.numel())) << p->name;
  }
}

TEST(GptBackward, AddsToGradients) {
  PlacedGpt once(kTiny), twice(kTiny);
  TokenBatch batch(2, 12, 13, 1);
  once.forward_backward(batch.all(), 1);
  twice.forward_backward(batch.all(), 1);
  twice.forward_backward(batch.all(), 1);
  const auto expected = once.reference().loss_and_gradients(batch.tokens, batch.targets, 12, 2);
  test::expect_gradients(twice, expected.gradients);
}

TEST(GptMemory, NothingIsKeptBeyondBackwardNorInEvaluation) {
  PlacedGpt gpt(kTiny);
  TokenBatch batch(2, 12, 13, 1);
  std::vector<parallel::Saved> saved;
  gpt.forward(batch.all(), saved);
  EXPECT_GT(gpt.memory.live_bytes(Category::Activations), 0u);
  gpt.backward(batch.all(), saved, 1);
  EXPECT_EQ(gpt.memory.live_bytes(Category::Activations), 0u);
  const size_t training_peak = gpt.memory.peak_bytes(Category::Activations);

  gpt.memory.reset_peaks();
  parallel::MicroBatch evaluation = batch.all();
  evaluation.training = false;
  gpt.forward(evaluation, saved);
  EXPECT_EQ(gpt.memory.live_bytes(Category::Activations), 0u);
  for (const auto& of_unit : saved) EXPECT_TRUE(of_unit.tensors.empty());
  EXPECT_LT(gpt.memory.peak_bytes(Category::Activations), training_peak / 2);
}

TEST(GptMemory, KeepsSixteenChannelsATokenAndLayer) {
  // Per token row: 8 C + 2 F of the layer, and its statistics (two norms, two numbers each; lse of each head).
  const auto live_after_forward = [](int64_t num_layers) {
    GptConfig config = kTiny;
    config.num_layers = num_layers;
    PlacedGpt gpt(config);
    TokenBatch batch(2, 12, 13, 1);
    std::vector<parallel::Saved> saved;
    gpt.forward(batch.all(), saved);
    return gpt.memory.live_bytes(Category::Activations);
  };
  EXPECT_EQ(live_after_forward(3) - live_after_forward(2), 24u * 4 * (16 * 16 + 4 + 4));
}

// ---- Errors --------------------------------------------------------------------------------------------------------

std::string config_error(GptConfig config) {
  try {
    Gpt gpt(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(GptErrors, ImpossibleConfigurationsNameFlagValueAndAllowedValues) {
  GptConfig config = {.num_heads = 5, .dim = 384};
  EXPECT_EQ(
      config_error(config),
      "--heads 5 does not divide --dim 384: allowed head counts are 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, "
      "128, 192, 384");
  const auto expect_error = [](auto change, const std::string& text) {
    GptConfig changed;
    change(changed);
    EXPECT_EQ(config_error(changed), text);
  };
  expect_error([](GptConfig& c) { c.num_layers = 0; }, "--layers 0: allowed values are whole numbers from 1 on");
  expect_error([](GptConfig& c) { c.num_heads = -1; }, "--heads -1: allowed values are whole numbers from 1 on");
  expect_error([](GptConfig& c) { c.dim = 0; }, "--dim 0: allowed values are whole numbers from 1 on");
  expect_error([](GptConfig& c) { c.seq_len = 0; }, "--seq-len 0: allowed values are whole numbers from 1 on");
  expect_error([](GptConfig& c) { c.dropout = 1; }, "--dropout 1: allowed values are 0 <= dropout < 1");
  expect_error([](GptConfig& c) { c.dropout = -0.5f; }, "--dropout -0.5: allowed values are 0 <= dropout < 1");
  expect_error([](GptConfig& c) { c.dropout = NAN; }, "--dropout nan: allowed values are 0 <= dropout < 1");
  EXPECT_EQ(config_error({}), "no error");
}

TEST(GptErrors, TokensAndTargetsOutsideTheVocabularyAreFound) {
  PlacedGpt gpt(kTiny);
  const auto loss_with = [&](int32_t token, int32_t target) {
    TokenBatch batch(2, 12, 13, 1);
    batch.tokens[5] = token;
    batch.targets[5] = target;
    return gpt.loss(batch.all());
  };
  EXPECT_NO_THROW(loss_with(12, 12));
  EXPECT_THROW(loss_with(13, 0), CheckError);
  EXPECT_THROW(loss_with(-1, 0), CheckError);
  EXPECT_THROW(loss_with(0, 13), CheckError);
  TokenBatch too_long(1, 13, 13, 1);  // 12 positions
  EXPECT_THROW(gpt.loss(too_long.all()), CheckError);
}

// ---- Sampling ------------------------------------------------------------------------------------------------------

/// exp(-loss) of the reference: how likely `next` is after `tokens`.
double probability(const test::ReferenceGpt& reference, std::vector<int32_t> tokens, int32_t next) {
  std::vector<int32_t> targets(tokens.size(), -1);
  targets.back() = next;
  return std::exp(-reference.loss_sum(tokens, targets, static_cast<int64_t>(tokens.size())));
}

GptConfig padded() {
  GptConfig config = kTiny;
  config.vocab_multiple = 16;
  return config;
}

TEST(Sample, TemperatureZeroTakesTheMostLikelyToken) {
  PlacedGpt gpt(padded());
  const auto reference = gpt.reference();
  std::vector<int32_t> text = {3, 1, 4};
  const auto sampled = models::sample(gpt.model, gpt.context, text, {.num_tokens = 20, .temperature = 0});
  ASSERT_EQ(sampled.size(), 20u);
  for (const int32_t token : sampled) {
    const size_t length = std::min<size_t>(text.size(), 12);  // it sees the last seq_len tokens
    const std::vector<int32_t> seen(text.end() - static_cast<std::ptrdiff_t>(length), text.end());
    for (int32_t other = 0; other < 13; ++other)
      EXPECT_LE(probability(reference, seen, other), probability(reference, seen, token) + 1e-5);
    text.push_back(token);
  }
}

TEST(Sample, FollowsTheProbabilities) {
  PlacedGpt gpt(padded());
  const auto reference = gpt.reference();
  const std::vector<int32_t> prompt = {7, 2};
  constexpr int kDraws = 2000;
  for (const float temperature : {1.0f, 2.0f}) {
    std::vector<double> expected(13);
    double sum = 0;
    for (int32_t v = 0; v < 13; ++v)
      sum += expected[static_cast<size_t>(v)] = std::pow(probability(reference, prompt, v), 1 / double{temperature});
    std::vector<int> counts(16);
    for (uint64_t seed = 0; seed < kDraws; ++seed)
      ++counts[static_cast<size_t>(models::sample(gpt.model, gpt.context, prompt,
                                                  {.num_tokens = 1, .temperature = temperature, .seed = seed})[0])];
    for (size_t v = 0; v < 13; ++v) {
      const double p = expected[v] / sum;
      EXPECT_NEAR(counts[v], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1) << v;
    }
    for (size_t v = 13; v < 16; ++v) EXPECT_EQ(counts[v], 0) << "padding";
  }
}

TEST(Sample, DependsOnTheSeedOnly) {
  PlacedGpt gpt(kTiny);
  const auto text = [&](uint64_t seed) {
    return models::sample(gpt.model, gpt.context, {1}, {.num_tokens = 30, .temperature = 1, .seed = seed});
  };
  EXPECT_EQ(text(5), text(5));
  EXPECT_NE(text(5), text(6));
  EXPECT_THROW(models::sample(gpt.model, gpt.context, {1}, {.temperature = -1}), ConfigError);
  EXPECT_THROW(models::sample(gpt.model, gpt.context, {}, {}), CheckError);
}

}  // namespace
}  // namespace sixfold
