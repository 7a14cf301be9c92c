// The GPT beside its double-precision reference: loss, gradients, optimizer steps; and the reference beside
// differences.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/gpt_fixture.h"
#include "tests/numbers.h"

namespace sixfold {
namespace {

using models::GptConfig;
using test::expect_gradients;
using test::PlacedGpt;
using test::ReferenceGpt;
using test::TokenBatch;

constexpr GptConfig kTiny = {.num_layers = 2, .num_heads = 4, .dim = 16, .seq_len = 12, .vocab_size = 13};

// ---- The reference itself ------------------------------------------------------------------------------------------

/// dropout_factor of a mask that drops a fifth, without the model's generator.
double toy_factor(int layer, int place, int64_t row, int64_t position, int64_t channel) {
  return (layer * 7 + place * 3 + row * 5 + position * 11 + channel * 13) % 5 == 0 ? 0.0 : 1.25;
}

TEST(ReferenceGptTest, GradientsAreThoseOfDifferences) {
  for (const bool dropout : {false, true}) {
    const PlacedGpt gpt(kTiny);
    ReferenceGpt reference = gpt.reference();
    if (dropout) reference.dropout_factor = toy_factor;
    TokenBatch batch(2, 9, 13, 1);
    batch.targets[3] = -1;
    const double scale = 1.0 / 17;
    const auto result = reference.loss_and_gradients(batch.tokens, batch.targets, 9, scale);
    EXPECT_EQ(result.num_valid, 17);
    for (auto& [name, values] : reference.params) {
      const test::Values& gradient = result.gradients.at(name);
      double largest = 0;
      for (double g : gradient) largest = std::max(largest, std::abs(g));
      for (size_t k = 0; k < 5; ++k) {  // five elements spread over the tensor
        const size_t i = k * (values.size() - 1) / 4;
        const double old = values[i], h = 1e-5;
        values[i] = old + h;
        const double above = scale * reference.loss_sum(batch.tokens, batch.targets, 9);
        values[i] = old - h;
        const double below = scale * reference.loss_sum(batch.tokens, batch.targets, 9);
        values[i] = old;
        EXPECT_NEAR((above - below) / (2 * h), gradient[i], 1e-7 * (1 + largest)) << name << " " << i;
      }
    }
  }
}

// ---- Loss and gradients --------------------------------------------------------------------------------------------

struct Case {
  GptConfig config;
  int64_t num_rows, seq_len;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.config.num_layers << " layers, " << c.config.num_heads << " heads, dim " << c.config.dim << ", "
         << c.num_rows << " rows of " << c.seq_len << ", vocabulary " << c.config.vocab_size << " in "
         << c.config.padded_vocab();
  }
};

class GptGradients : public ::testing::TestWithParam<Case> {};

TEST_P(GptGradients, EqualTheReference) {
  const auto& [config, num_rows, seq_len] = GetParam();
  PlacedGpt gpt(config);
  TokenBatch batch(num_rows, seq_len, config.vocab_size, 3);
  const double scale = 1.0 / static_cast<double>(batch.num_valid());
  const auto expected = gpt.reference().loss_and_gradients(batch.tokens, batch.targets, seq_len, scale);
  const double loss = gpt.forward_backward(batch.all(), scale);
  EXPECT_NEAR(loss, expected.loss_sum, 1e-5 * expected.loss_sum);
  expect_gradients(gpt, expected.gradients);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GptGradients,
    ::testing::Values(
        Case{kTiny, 3, 12},  // every position in use
        Case{kTiny, 1, 1},   // a single token: attention looks at itself only
        Case{{.num_layers = 1, .num_heads = 1, .dim = 5, .seq_len = 11, .vocab_size = 3}, 2, 7},
        Case{{.num_layers = 3, .num_heads = 3, .dim = 21, .seq_len = 9, .vocab_size = 17}, 2, 8},
        Case{{.num_layers = 1, .num_heads = 2, .dim = 8, .seq_len = 80, .vocab_size = 5}, 2, 71},  // several tiles
        Case{{.num_layers = 2, .num_heads = 2, .dim = 8, .seq_len = 8, .vocab_size = 13, .vocab_multiple = 8}, 2, 8}));

TEST(GptTest, PaddedVocabularyHasNoGradient) {
  GptConfig config = kTiny;
  config.vocab_multiple = 8;
  PlacedGpt gpt(config);
  TokenBatch batch(2, 12, 13, 3);
  gpt.forward_backward(batch.all(), 1);
  const Tensor& grad = gpt.parameter("wte.weight").grad;
  ASSERT_EQ(grad.shape(), (Shape{16, 16}));
  for (int64_t i = 13 * 16; i < grad.numel(); ++i) EXPECT_EQ(grad.data<float>()[i], 0.0f);
}

TEST(GptTest, MaskedTargetsCountNothing) {
  PlacedGpt gpt(kTiny);
  TokenBatch batch(3, 10, 13, 4);
  for (size_t t = 0; t < 10; ++t) batch.targets[10 + t] = -1;  // the whole of row 1
  for (const size_t i : {0, 4, 29}) batch.targets[i] = -100;
  const double scale = 1.0 / 17;
  const auto expected = gpt.reference().loss_and_gradients(batch.tokens, batch.targets, 10, scale);
  ASSERT_EQ(expected.num_valid, 17);
  EXPECT_NEAR(gpt.forward_backward(batch.all(), scale), expected.loss_sum, 1e-5 * expected.loss_sum);
  expect_gradients(gpt, expected.gradients);
}

TEST(GptTest, NoValidTargetGivesZeroEverywhere) {
  PlacedGpt gpt(kTiny);
  TokenBatch batch(2, 12, 13, 5);
  std::fill(batch.targets.begin(), batch.targets.end(), -1);
  EXPECT_EQ(gpt.forward_backward(batch.all(), 1), 0);
  for (const auto* p : gpt.parameters)
    for (int64_t i = 0; i < p->grad.numel(); ++i) ASSERT_EQ(p->grad.data<float>()[i], 0.0f) << p->name;
}

TEST(GptTest, BitsDoNotDependOnThreads) {
  PlacedGpt one(kTiny), three(kTiny);
  three.context.num_threads = 3;
  TokenBatch batch(5, 12, 13, 6);
  EXPECT_EQ(one.forward_backward(batch.all(), 1), three.forward_backward(batch.all(), 1));
  for (size_t i = 0; i < one.parameters.size(); ++i) {
    const Tensor &a = one.parameters[i]->grad, &b = three.parameters[i]->grad;
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << one.parameters[i]->name;
  }
}

TEST(GptTest, TwoMicroBatchesInFlightAddUpToOneBatch) {
  PlacedGpt gpt(kTiny);
  TokenBatch batch(5, 12, 13, 6);
  const double scale = 1.0 / 60;
  const auto expected = gpt.reference().loss_and_gradients(batch.tokens, batch.targets, 12, scale);
  const auto first = batch.rows(0, 2), second = batch.rows(2, 3);
  std::vector<parallel::Saved> saved_first, saved_second;
  double loss = gpt.forward(first, saved_first);
  loss += gpt.forward(second, saved_second);
  gpt.backward(second, saved_second, scale);
  gpt.backward(first, saved_first, scale);
  EXPECT_NEAR(loss, expected.loss_sum, 1e-5 * expected.loss_sum);
  expect_gradients(gpt, expected.gradients);
}

// ---- Dropout -------------------------------------------------------------------------------------------------------

GptConfig with_dropout() {
  GptConfig config = kTiny;
  config.dropout = 0.3f;
  config.seed = 11;
  return config;
}

TEST(GptDropout, GradientsEqualTheReferenceUnderTheSameMask) {
  PlacedGpt gpt(with_dropout());
  TokenBatch batch(3, 10, 13, 8);
  batch.sample_index = {5, 0, 1000000007};
  parallel::MicroBatch micro_batch = batch.all();
  micro_batch.step = 3;

  // The masks, one site at a time: what the kernel makes of ones.
  std::map<std::pair<int, int>, std::vector<float>> masks;
  ReferenceGpt reference = gpt.reference();
  reference.dropout_factor = [&](int layer, int place, int64_t row, int64_t position, int64_t channel) {
    std::vector<float>& mask = masks[{layer, place}];
    if (mask.empty()) {
      mask.assign(30 * 16, 1.0f);
      const Tensor ones = Tensor::view(mask.data(), {30, 16}, DType::F32);
      const kernels::DropoutSite site = {.probability = 0.3f, .seed = 11, .step = 3, .layer = layer, .site = place};
      kernels::dropout_forward(gpt.context, site, micro_batch.rows(), ones, {}, ones);
    }
    return mask[static_cast<size_t>((row * 10 + position) * 16 + channel)] == 0 ? 0.0 : 1 / 0.7;
  };
  const auto expected = reference.loss_and_gradients(batch.tokens, batch.targets, 10, 1.0 / 30);
  EXPECT_NEAR(gpt.forward_backward(micro_batch, 1.0 / 30), expected.loss_sum, 1e-5 * expected.loss_sum);
  expect_gradients(gpt, expected.gradients);
  EXPECT_EQ(masks.size(), 5u);  // the embeddings, two in each layer
  for (const auto& [site, mask] : masks)
    EXPECT_NEAR(std::count(mask.begin(), mask.end(), 0.0f), 144, 50) << site.first << " " << site.second;
}

TEST(GptDropout, GradientIsTheSlopeOfTheLossAtAFixedMask) {
  PlacedGpt gpt(with_dropout());
  TokenBatch batch(3, 12, 13, 8);
  gpt.forward_backward(batch.all(), 1);
  for (auto* p : gpt.parameters) {  // along the tensor's own gradient the slope is the gradient's norm
    const int64_t n = p->value.numel();
    float *w = p->value.data<float>(), *g = p->grad.data<float>();
    const double norm = std::sqrt(test::sum_of_squares(gpt.context, {p->grad}));
    const std::vector<float> old(w, w + n);
    const double h = 4e-3;
    const auto loss_at = [&](double distance) {
      for (int64_t i = 0; i < n; ++i) w[i] = static_cast<float>(old[static_cast<size_t>(i)] + distance * g[i] / norm);
      return gpt.loss(batch.all());
    };
    const double slope = (loss_at(h) - loss_at(-h)) / (2 * h);
    EXPECT_NEAR(slope, norm, 0.01 * norm + 0.01) << p->name;
    std::copy(old.begin(), old.end(), w);
  }
}

TEST(GptDropout, MaskDependsOnStepAndSampleOnly) {
  PlacedGpt gpt(with_dropout());
  TokenBatch batch(4, 12, 13, 9);
  parallel::MicroBatch all = batch.all();
  const double loss = gpt.loss(all);
  EXPECT_EQ(gpt.loss(all), loss);
  // The same samples in two micro-batches keep their masks.
  EXPECT_NEAR(gpt.loss(batch.rows(0, 1)) + gpt.loss(batch.rows(1, 3)), loss, 1e-5 * loss);
  all.step = 1;
  EXPECT_GT(std::abs(gpt.loss(all) - loss), 1e-3 * loss);
  // Evaluation drops nothing.
  all.training = false;
  const double expected = gpt.reference().loss_sum(batch.tokens, batch.targets, 12);
  EXPECT_NEAR(gpt.loss(all), expected, 1e-5 * expected);
}

// ---- Optimizer -----------------------------------------------------------------------------------------------------

TEST(GptTest, TenAdamWStepsFollowTheReference) {
  PlacedGpt gpt(kTiny);
  ReferenceGpt reference = gpt.reference();
  std::map<std::string, std::pair<Tensor, Tensor>> moments;
  for (const auto* p : gpt.parameters)
    moments[p->name] = {Tensor::zeros(p->value.shape(), DType::F32, gpt.memory, Category::Optimizer),
                        Tensor::zeros(p->value.shape(), DType::F32, gpt.memory, Category::Optimizer)};
  double first_loss = 0;
  for (int step = 1; step <= 10; ++step) {
    TokenBatch batch(3, 12, 13, 20 + static_cast<uint64_t>(step % 2));
    const auto expected = reference.loss_and_gradients(batch.tokens, batch.targets, 12, 1.0 / 36);
    gpt.clear_gradients();
    const double loss = gpt.forward_backward(batch.all(), 1.0 / 36);
    EXPECT_NEAR(loss, expected.loss_sum, 1e-5 * expected.loss_sum) << "step " << step;
    double squares = 0;
    for (const auto* p : gpt.parameters) squares += test::sum_of_squares(gpt.context, {p->grad});
    const double norm = ReferenceGpt::norm(expected.gradients);
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-5 * norm) << "step " << step;

    for (const auto* p : gpt.parameters) {
      const kernels::AdamWParams adamw = {.lr = 3e-3f, .weight_decay = p->decay ? 0.1f : 0, .step = step};
      kernels::adamw_update(gpt.context, adamw, {}, p->grad, p->value, moments[p->name].first, moments[p->name].second);
    }
    reference.adamw_step(expected.gradients, {.lr = 3e-3, .weight_decay = 0.1});
    if (step == 1) first_loss = loss;
    if (step == 9) {
      EXPECT_LT(loss, 0.9 * first_loss);  // the same batch as step 1: it must have learnt
    }
  }
}

TEST(GptTest, SgdStepsGiveTheReferencesWeights) {
  PlacedGpt gpt(kTiny);
  ReferenceGpt reference = gpt.reference();
  for (int step = 0; step < 5; ++step) {
    TokenBatch batch(3, 12, 13, 30 + static_cast<uint64_t>(step));
    const auto expected = reference.loss_and_gradients(batch.tokens, batch.targets, 12, 1.0 / 36);
    gpt.clear_gradients();
    gpt.forward_backward(batch.all(), 1.0 / 36);
    for (const auto* p : gpt.parameters) kernels::sgd_update(gpt.context, 0.1f, 0, {}, p->grad, p->value);
    reference.sgd_step(expected.gradients, double{0.1f});
  }
  for (const auto* p : gpt.parameters) {
    const test::Values& expected = reference.params.at(p->name);
    EXPECT_LE(test::relative_difference(p->value, expected, expected.size(), 0, expected.size()), 1e-5) << p->name;
  }
}

}  // namespace
}  // namespace sixfold
