// compare_strategies as a user runs it: what it prints and writes, that all strategies train the same, that what it
// counts is what formulas say, and what it refuses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kProgram = SIXFOLD_BUILD_DIR "/compare_strategies ";
constexpr int kLayers = 2, kDim = 16, kSeqLen = 16, kBatch = 8, kVocabulary = 256;

// This file is text, too.
const std::string kModel = "--data " SIXFOLD_SOURCE_DIR
                           "/tests/compare_strategies_test.cpp --layers 2 --dim 16 --heads 2 --seq-len 16 "
                           "--global-batch 8 --steps 3 --threads 1 ";

class CompareStrategies : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("sixfold_compare_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  json run(const std::string& start, const std::string& options) {
    const Outcome outcome = run_command(start + kModel + options + " --json " + file("json"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    output_ = outcome.output;
    return json::parse(std::ifstream(file("json")));
  }

  fs::path folder_;
  std::string output_;
};

const json& strategy(const json& document, const std::string& name) {
  for (const json& s : document["strategies"]) {
    if (s["name"] == name) return s;
  }
  throw std::runtime_error("no strategy " + name);
}

double sent(const json& of_strategy, const std::string& tag) {
  double bytes = 0;
  for (const json& row : of_strategy["comm"]) bytes += row["tag"] == tag ? row["sent_bytes"].get<double>() : 0;
  return bytes;
}

double peak(const json& of_strategy, const std::string& category) {
  for (const json& row : of_strategy["memory"]) {
    if (row["category"] == category) return row["peak_bytes"];
  }
  return 0;
}

/// GPT-2's: blocks of 12 C^2 + 13 C, tokens, positions, and the last LayerNorm.
constexpr double parameter_bytes() {
  return 4.0 * (kLayers * (12 * kDim * kDim + 13 * kDim) + kDim * (kVocabulary + kSeqLen) + 2 * kDim);
}

void expect_what_formulas_say(const json& document) {
  const double activation = 4.0 * kBatch * kSeqLen * kDim;  // S
  EXPECT_EQ(document["checks"]["losses_equal"], true);
  EXPECT_EQ(document["checks"]["bytes_equal"], true);
  EXPECT_EQ(document["checks"]["memory_within"], true);
  EXPECT_EQ(document["model"]["parameters"], parameter_bytes() / 4);

  const json& one = strategy(document, "one");
  EXPECT_EQ(one["sent_bytes"], 0);
  EXPECT_EQ(one["calls"], 0);
  ASSERT_EQ(one["steps"].size(), 3u);
  EXPECT_NEAR(one["steps"][0]["loss"], std::log(kVocabulary), 0.1);  // before it has learnt anything
  for (const json& s : document["strategies"]) {
    SCOPED_TRACE(s["name"]);
    for (size_t step = 0; step < 3; ++step) {
      EXPECT_NEAR(s["steps"][step]["loss"], one["steps"][step]["loss"].get<double>(), 1e-4);
    }
    EXPECT_GT(s["step_ms"], 0);
    EXPECT_GE(s["exposed_ms"], s["late_ms"]);
    EXPECT_EQ(s["timeline"]["ranks"].size(), s["ranks"]);
    for (const json& rank : s["timeline"]["ranks"]) EXPECT_TRUE(rank["tracks"].contains("forward")) << rank;
    for (const json& row : s["traffic"]) {
      EXPECT_DOUBLE_EQ(row["sent_bytes"], row["predicted_bytes"].get<double>()) << row["tag"];
    }
  }

  // Two ranks: 2(N-1)/N = 1 of the gradients, and half of gradients and parameters each; padding is a few bytes.
  EXPECT_EQ(sent(strategy(document, "ddp"), "dp.grads"), parameter_bytes());
  EXPECT_NEAR(sent(strategy(document, "zero3"), "zero3.grads"), parameter_bytes() / 2, 1000);
  EXPECT_EQ(peak(strategy(document, "ddp"), "optimizer"), 2 * parameter_bytes());
  EXPECT_NEAR(peak(strategy(document, "zero3"), "optimizer"), parameter_bytes(), 1000);
  // Each block's two all-reduces in forward.
  EXPECT_EQ(sent(strategy(document, "tp2"), "tp.attn_out"), kLayers * activation);
  EXPECT_EQ(sent(strategy(document, "tp2"), "tp.mlp_out"), kLayers * activation);
  // One boundary, whose activations the first stage sends and the second not: half of them a rank.
  EXPECT_EQ(sent(strategy(document, "pp2+gpipe"), "pp.activation"), activation / 2);
  EXPECT_EQ(strategy(document, "pp2+gpipe")["micro_batches"], 4);
}

const std::string kList = "--strategies one,ddp,zero3,tp2,pp2+gpipe ";

TEST_F(CompareStrategies, StrategiesTrainTheSameAndSendWhatFormulasSay) {
  const json document = run(kProgram + "--ranks 2 ", kList + "--profile a100-hdr");
  expect_what_formulas_say(document);
  EXPECT_EQ(times(output_, "bytes in the links are those of the formulas, for every tag"), 1) << output_;
  EXPECT_EQ(times(output_, "losses of all 3 steps are equal"), 1);
  const json& verdict = strategy(document, "tp2")["verdicts"][0];
  EXPECT_EQ(verdict["profile"], "a100-hdr");
  EXPECT_EQ(verdict["axes"][0]["axis"], "tp");
  EXPECT_GT(verdict["axes"][0]["across"]["all_ms"], verdict["axes"][0]["inside"]["all_ms"]);
}

#ifdef SIXFOLD_MPIRUN
TEST_F(CompareStrategies, ProcessesGiveTheSame) {
  const json document = run(mpirun(2) + kProgram, kList);
  EXPECT_EQ(document["ranks"], "2 ranks (mpi)");
  expect_what_formulas_say(document);
}
#endif

TEST_F(CompareStrategies, EitherPlacementIsMeasuredOnEmulatedLinks) {
  const json document = run(kProgram + "--ranks 4 ",
                            "--strategies dp2xtp2,hsdp --topology 2x2 --emulate-links intra=300,inter=25,scale=0.002 "
                            "--markdown");
  ASSERT_EQ(document["placements"].size(), 1u);
  const json& placement = document["placements"][0];
  EXPECT_EQ(placement["strategy"], "dp2xtp2");
  EXPECT_EQ(placement["runs"][0]["inside"], "tp");
  EXPECT_EQ(placement["runs"][1]["inside"], "dp");
  EXPECT_EQ(placement["runs"][1]["across"], "tp");
  // Tensor-parallel groups are within nodes, so only gradients cross.
  double tp_across = 0, dp_across = 0;
  for (const json& row : strategy(document, "dp2xtp2")["comm"]) {
    (row["axis"] == "tp" ? tp_across : dp_across) += row["sent_inter_bytes"].get<double>();
  }
  EXPECT_EQ(tp_across, 0);
  EXPECT_GT(dp_across, 0);
  EXPECT_NE(output_.find("| strategy | mesh |"), std::string::npos) << output_;
}

TEST_F(CompareStrategies, AStrategyThatDiffersEndsWithOne) {
  // A step that is far too long: nothing is finite any more, and so nothing equal.
  const Outcome outcome =
      run_command(kProgram + "--ranks 2 " + kModel + "--strategies ddp,tp2 --optimizer sgd --lr 1e30 --clip 0");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_EQ(times(outcome.output, "LOSS DIFFERS: "), 2) << outcome.output;
}

TEST_F(CompareStrategies, RefusesWhatCannotBeInOneLine) {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"--ranks 2 --strategies zero7", {"--strategies zero7", "allowed", "zero1"}},
      {"--ranks 2 --strategies tp4", {"--tp 4", "2 ranks", "Allowed"}},
      {"--ranks 2 --strategies hsdp", {"--hsdp", "--topology NODESxRANKS"}},
      {"--ranks 2 --strategies pp2+m3", {"--strategies pp2+m3", "8 rows", "m3"}},
      {"--profile nope", {"--profile nope", "a100-hdr"}},
      {"--json /nonexistent/x", {"--json /nonexistent/x"}},
      {"--json x --html x", {"--json and --html x"}},
      {"--nope", {"--nope"}},
  };
  for (const auto& [arguments, words] : cases) {
    SCOPED_TRACE(arguments);
    const Outcome outcome = run_command(kProgram + kModel + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_EQ(times(outcome.output, "\n"), 1) << outcome.output;
    for (const std::string& word : words) EXPECT_NE(outcome.output.find(word), std::string::npos) << outcome.output;
  }
}

}  // namespace
}  // namespace sixfold::test
