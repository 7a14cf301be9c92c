// Models by name: their sizes, and what options make of them.
#include "models/config.h"

#include "models/gpt.h"
#include "tests/plan_rig.h"
#include "tests/refusal.h"

namespace sixfold::models {
namespace {

// Weights and biases of a model of L layers of C channels, T positions and V tokens, each counted where it stands in
// the paper's figure: tables, two LayerNorms a block, qkv, output, up, down; the last LayerNorm.
int64_t parameters_by_hand(int64_t L, int64_t C, int64_t T, int64_t V) {
  const int64_t norm = C + C, qkv = C * 3 * C + 3 * C, output = C * C + C, up = C * 4 * C + 4 * C, down = 4 * C * C + C;
  return V * C + T * C + L * (norm + qkv + output + norm + up + down) + norm;
}

TEST(Presets, HaveThePublishedNumbersOfParameters) {
  const std::map<std::string, int64_t> published = {
      {"gpt2-124m", 124'439'808}, {"gpt2-350m", 354'823'168}, {"gpt2-774m", 774'030'080}, {"gpt2-1.5b", 1'557'611'200}};
  for (const auto& [name, expected] : published) {
    const GptConfig config = preset(name);
    EXPECT_EQ(Gpt(config).num_parameters(), expected) << name;  // padding is not counted
    EXPECT_EQ(config.vocab_size, 50257) << name;
    EXPECT_EQ(config.padded_vocab(), 50304) << name;  // 393 x 128
  }
  EXPECT_EQ(Gpt(preset("tiny")).num_parameters(), parameters_by_hand(4, 128, 128, 256));
  EXPECT_EQ(Gpt(preset("small")).num_parameters(), parameters_by_hand(6, 384, 256, 256));
}

TEST(Presets, CostWhatTheFormulaSays) {
  // 6 x (parameters - positions) + 12 layers x dim x T
  EXPECT_EQ(Gpt(preset("gpt2-124m")).flops_per_token(1024), 6 * (124'439'808 - 786'432) + 12 * 12 * 768 * 1024);
  EXPECT_EQ(Gpt(preset("gpt2-1.5b")).flops_per_token(1024),
            6 * (int64_t{1'557'611'200} - 1'638'400) + 12 * 48 * 1600 * 1024);
}

TEST(Presets, AreNamedWhereThereIsNone) {
  const std::string text = test::refusal([] { preset("gpt3"); });
  test::expect_mentions(text, {"--model gpt3", "allowed values are"});
  test::expect_mentions(text, preset_names());
  EXPECT_EQ(preset_names(),
            (std::vector<std::string>{"tiny", "small", "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1.5b"}));
}

void expect_sizes(const GptConfig& model, int64_t layers, int64_t heads, int64_t dim, int64_t seq_len, int64_t vocab,
                  int64_t padded) {
  EXPECT_EQ(model.num_layers, layers);
  EXPECT_EQ(model.num_heads, heads);
  EXPECT_EQ(model.dim, dim);
  EXPECT_EQ(model.seq_len, seq_len);
  EXPECT_EQ(model.vocab_size, vocab);
  EXPECT_EQ(model.padded_vocab(), padded);
}

TEST(Presets, OptionsSayOtherwise) {
  expect_sizes(test::plan_of("").model, 4, 4, 128, 128, 256, 256);
  expect_sizes(test::plan_of("--model tiny").model, 4, 4, 128, 128, 256, 256);
  expect_sizes(test::plan_of("--model small --ranks 3 --tp 3").model, 6, 6, 384, 256, 256, 258);
  expect_sizes(test::plan_of("--model gpt2-124m --layers 1 --seq-len 16").model, 1, 12, 768, 16, 50257, 50304);
  expect_sizes(test::plan_of("--heads 8 --model gpt2-350m --dim 64 --layers 2").model, 2, 8, 64, 1024, 50257, 50304);
  expect_sizes(test::plan_of("--model gpt2-124m --layers 2 --vocab 1000").model, 2, 12, 768, 1024, 1000, 1024);
  // A multiple of 128 and of 5, in whichever order: 79 x 640.
  const train_gpt::Plan cut = test::plan_of("--model gpt2-774m --layers 1 --global-batch 5 --ranks 5 --tp 5");
  expect_sizes(cut.model, 1, 20, 1280, 1024, 50257, 50560);
  EXPECT_EQ(cut.trainer.seq_len, 1024);
  test::expect_mentions(test::refusal([] { test::plan_of("--model gpt2-124m --heads 5"); }),
                        {"--heads 5", "--dim 768", "allowed head counts"});
  test::expect_mentions(test::refusal([] { test::plan_of("--model gpt3"); }), {"--model gpt3", "gpt2-1.5b"});
}

}  // namespace
}  // namespace sixfold::models
