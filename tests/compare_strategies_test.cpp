// compare_strategies as a user runs it: what it prints and writes, that all strategies train the same, that what it
// counts is what formulas say, and what it refuses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

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

/// kModel with another choice.
std::string model_with(const std::string& choice, const std::string& other) {
  std::string model = kModel;
  return model.replace(model.find(choice), choice.size(), other);
}

class CompareStrategies : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("sixfold_compare_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  json run(const std::string& start, const std::string& options, const std::string& model = kModel) {
    const Outcome outcome = run_command(start + model + options + " --json " + file("json"));
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

/// Times are medians of steps 2 and 3, so means of the two.
void expect_figures_of_steps(const json& s) {
  const double step_ms = (s["steps"][1]["ms"].get<double>() + s["steps"][2]["ms"].get<double>()) / 2;
  EXPECT_NEAR(s["step_ms"], step_ms, 1e-9 * step_ms);
  EXPECT_EQ(s["counted_steps"], 2);
  EXPECT_GE(s["exposed_ms"], s["late_ms"]);
  EXPECT_LE(s["exposed_ms"], s["step_ms"]);
  double exposed_ms = 0;  // of two steps, sums and means can be taken in any order
  for (const json& row : s["comm"]) {
    exposed_ms += row["exposed_ms"].get<double>();
    EXPECT_NE(row["tag"], "dp.params");  // before the first step
  }
  EXPECT_NEAR(exposed_ms, s["exposed_ms"], 1e-9 + 1e-9 * exposed_ms);
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
    expect_figures_of_steps(s);
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
  EXPECT_EQ(document["no_placements"], "that takes --emulate-links and two nodes, such as --topology 2x2");
  EXPECT_EQ(verdict["axes"][0]["axis"], "tp");
  EXPECT_GT(verdict["axes"][0]["across"]["all_ms"], verdict["axes"][0]["inside"]["all_ms"]);
}

#ifdef SIXFOLD_MPIRUN
TEST_F(CompareStrategies, ProcessesGiveTheSame) {
  const json document = run(mpirun(2) + kProgram, kList);
  EXPECT_EQ(document["ranks"], "2 ranks (mpi)");
  expect_what_formulas_say(document);
}

// MPI's own collectives: nobody counts what they send, and so nothing says that it did.
TEST_F(CompareStrategies, WhatMpiSendsIsNotKnown) {
  const json document =
      run(mpirun(2) + kProgram, "--strategies one,zero1 --comm mpi --profile host --html " + file("page"));
  EXPECT_EQ(document["checks"]["bytes_equal"], nullptr);
  EXPECT_EQ(strategy(document, "one")["sent_bytes"], 0);
  const json& zero1 = strategy(document, "zero1");
  for (const char* key : {"sent_bytes", "sent_inter_bytes", "late_ms", "differing_bytes"}) {
    EXPECT_TRUE(zero1.at(key).is_null()) << key;
  }
  EXPECT_GT(zero1["exposed_ms"], 0);
  ASSERT_FALSE(zero1["comm"].empty());
  for (const json& row : zero1["comm"]) {
    for (const char* key : {"sent_bytes", "formula_bytes", "late_ms"}) EXPECT_TRUE(row.at(key).is_null()) << row;
  }
  for (const json& sum : zero1["by_primitive"]) EXPECT_TRUE(sum.at("sent_bytes").is_null()) << sum;
  EXPECT_TRUE(zero1["verdicts"][0]["axes"][0].at("sent_mb").is_null());
  EXPECT_EQ(times(output_, "bytes in the links are not checked: --comm mpi counts no links"), 1) << output_;
  std::stringstream page;
  page << std::ifstream(file("page")).rdbuf();
  EXPECT_EQ(times(page.str(), "<li class=\"open\">bytes in the links are not checked"), 1);
  EXPECT_EQ(times(page.str(), "sends least</div><div class=\"number\">not known</div>"), 1);
  EXPECT_EQ(times(page.str(), "waiting for a late rank"), 0);
}
#endif

TEST_F(CompareStrategies, EitherPlacementIsMeasuredOnEmulatedLinks) {
  const json document = run(kProgram + "--ranks 4 ",
                            "--strategies dp2xtp2,hsdp --topology 2x2 --emulate-links intra=300,inter=25,scale=0.002 "
                            "--markdown");
  ASSERT_EQ(document["placements"].size(), 1u);
  const json& placement = document["placements"][0];
  EXPECT_EQ(placement["strategy"], "dp2xtp2");
  EXPECT_EQ(document["no_placements"], nullptr);
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
  EXPECT_EQ(times(outcome.output, "LOSS IS NOT FINITE: "), 2) << outcome.output;
  EXPECT_EQ(times(outcome.output, "LOSS DIFFERS: "), 0) << outcome.output;
}

// Five ranks divide neither heads nor layers: what is left is data parallel, with a batch that they divide.
TEST_F(CompareStrategies, AnyNumberOfRanksHasSomethingToCompare) {
  const json document = run(kProgram + "--ranks 5 ", "", model_with("--global-batch 8", ""));
  EXPECT_EQ(document["global_batch"], 20);
  std::vector<std::string> names;
  for (const json& s : document["strategies"]) names.push_back(s["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"one", "ddp", "ddp+no-overlap", "zero1", "zero2", "zero3"}));
  EXPECT_EQ(times(output_, "left out: tp5 (--heads 2 is not cut"), 1) << output_;
}

TEST_F(CompareStrategies, TheSameStrategyIsComparedOnce) {
  const json document =
      run(kProgram + "--ranks 2 ", "--strategies \" one , tp2, dp1xtp2 \"", model_with("--steps 3", "--steps 1"));
  EXPECT_EQ(document["strategies"].size(), 2u);
  EXPECT_EQ(times(output_, "left out: dp1xtp2 (the same as tp2, compared once)"), 1) << output_;
  EXPECT_EQ(times(output_, "losses of the one step are equal"), 1) << output_;
}

TEST_F(CompareStrategies, FilesThatDoNotFitLeaveWhatWasThere) {
  std::ofstream(file("json")) << "before";
  for (const char* flag : {"--json ", "--html "}) {
    const std::string path = file(flag[2] == 'j' ? "json" : "page");
    const Outcome outcome =
        run_command("bash -c 'ulimit -f 1; exec " + kProgram + kModel + "--strategies one " + flag + path + "'");
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_EQ(times(outcome.output, flag + path + ": cannot be written"), 1) << outcome.output;
  }
  std::string text;
  std::ifstream(file("json")) >> text;
  EXPECT_EQ(text, "before");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);  // no part, no page
}

TEST_F(CompareStrategies, RefusesWhatCannotBeInOneLine) {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"--ranks 2 --strategies zero7", {"--strategies zero7", "allowed", "zero1"}},
      {"--ranks 2 --strategies tp4", {"--strategies tp4", "4 ranks", "allowed"}},
      {"--ranks 2 --strategies hsdp", {"--strategies hsdp", "--topology NODESxRANKS"}},
      {"--ranks 5", {"nothing to compare with one", "tp5: --heads 2", "zero2, zero3, hsdp: --global-batch 8"}},
      {"--ranks 2 --strategies pp2+m3", {"--strategies pp2+m3", "8 rows", "m3"}},
      {"--ranks 4 --topology 3x2", {"compare_strategies: --topology 3x2", "2x2"}},
      {"--profile nope", {"--profile nope", "a100-hdr, h100-ndr, host"}},
      {"--json /nonexistent/x", {"--json /nonexistent/x"}},
      {"--html /dev/full", {"--html /dev/full", "no regular file"}},
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
