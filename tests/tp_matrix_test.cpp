// train_gpt with tensor and sequence parallelism, alone and with data-parallel strategies: the run of one rank, whoever
// holds what; the same text; what cannot be cut is refused.
#include "tests/train_gpt_fixture.h"

namespace sixfold::test {
namespace {

// Heads, positions and rows divide by 2, 3 and 4; the vocabulary of 256 does not by 3 and is padded.
constexpr int64_t kWidth = 24;

class TensorParallel : public TrainGpt {
 protected:
  static void SetUpTestSuite() {
    TrainGpt::SetUpTestSuite();
    model_ = "--layers 2 --dim 24 --heads 12 --seq-len 24 --global-batch 12 --eval-windows 6 ";
  }
  void expect_right(const std::string& start, const std::string& options) {
    SCOPED_TRACE(start + options);
    const Outcome outcome = train(start, kRun + options + "--dump " + file("dump"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    expect_same_run(file("dump"), file("reference"), kWidth);
  }

  // Dropout is on: the masks are those of one rank.
  static inline const std::string kRun = "--steps 5 --optimizer sgd --lr 0.5 --warmup 2 --dropout 0.1 ";
};

// As processes, where this build has MPI: layouts_test has every axis with threads.
TEST_F(TensorParallel, EverySplitIsTheRunOfOneRank) {
  ASSERT_EQ(train(kProgram, kRun + "--dump " + file("reference")).exit_code, 0);
  const bool processes = kinds_of_ranks().size() > 1;
  expect_right(launch(processes, 3), "--tp 3 --sequence-parallel megatron --recompute --micro-batch 4 ");
  expect_right(launch(processes, 4), "--tp 4 --no-overlap ");
  expect_right(launch(processes, 4), "--sp 4 --micro-batch 4 --recompute ");
  expect_right(launch(processes, 4), "--tp 2 --dp 2 --zero 2 --micro-batch 3 --check-replicas 2 ");
  expect_right(launch(processes, 4), "--sp 2 --dp 2 --zero 1 --micro-batch 2 ");
  expect_right(launch(processes, 4), "--tp 2 --sp 2 --sequence-parallel megatron --zero 3 --check-replicas 2 ");
  if (!processes) return;
  expect_right(launch(true, 4), "--tp 2 --dp 2 --comm mpi --zero 2 ");
  expect_right(launch(true, 4), "--tp 2 --sp 2 --comm mpi --sequence-parallel megatron ");
}

TEST_F(TensorParallel, AdamWHasTheLossAndTheNormOfOneRank) {
  const std::vector<json> reference = log_of(kProgram, "--steps 10");
  ASSERT_EQ(reference.size(), 11u);
  for (const std::string options : {"--tp 2 --zero 1", "--tp 4", "--tp 2 --sequence-parallel megatron --zero 2",
                                    "--sp 2 --zero 3", "--tp 2 --sp 2 --sequence-parallel megatron"}) {
    const std::vector<json> log = log_of(launch(false, 4), "--steps 10 " + options);
    ASSERT_EQ(log.size(), 11u);
    for (size_t step = 0; step < 10; ++step) {
      for (const char* what : {"loss", "grad_norm"}) {
        const double expected = reference[step][what];
        EXPECT_NEAR(log[step][what], expected, 1e-5 * expected) << options << ", step " << step + 1 << " " << what;
      }
    }
    const double val_loss = reference[10]["summary"]["val_loss"];
    EXPECT_NEAR(log[10]["summary"]["val_loss"], val_loss, 1e-4 * val_loss);
    EXPECT_EQ(log[10]["summary"]["parameters"], reference[10]["summary"]["parameters"]);
  }
}

// The same cut of layers and sequences, whatever the strategy: the same bits. Before the first update, those of one
// rank.
TEST_F(TensorParallel, DeterministicRunsHaveOneHashOfWeightsAndMoments) {
  const auto hashes = [&](int n, const std::string& options) {
    const std::vector<json> log = log_of(launch(false, n), "--deterministic --dropout 0.1 " + options);
    if (log.empty()) return std::string();
    const json& summary = log.back()["summary"];
    return summary["weights_hash"].get<std::string>() + " " + summary["state_hash"].get<std::string>();
  };
  for (const std::string cut : {"--tp 2 --sequence-parallel megatron ", "--sp 2 "}) {
    const std::string options = "--steps 4 --dp 2 --micro-batch 2 " + cut;
    const std::string expected = hashes(4, options);
    for (const char* zero : {"--zero 1 --no-overlap", "--zero 3"}) {
      EXPECT_EQ(hashes(4, options + zero), expected) << cut << zero;
    }
  }
  const std::string start = "--steps 1 --optimizer sgd --lr 0 ";
  const std::string expected = hashes(1, start);
  EXPECT_EQ(expected.size(), 33u);
  EXPECT_EQ(hashes(3, start + "--tp 3 "), expected);
  EXPECT_EQ(hashes(2, start + "--sp 2 "), expected);
}

// Counted in the links, to the byte: the sums of the formulas for one block are written out here once more.
TEST_F(TensorParallel, SendsAndKeepsWhatTheFormulasSay) {
  const std::string options = "--steps 2 --val-fraction 0 --algorithm ring --micro-batch 3 ";
  const double bytes = 3 * 24 * kWidth * 4;  // S of a micro-batch; 4 micro-batches with dp 1
  struct Case {
    int n;
    std::string options;
    double blocks;  // sent a step for both blocks and all micro-batches
  };
  const std::vector<Case> cases = {
      {2, "--tp 2", 2 * 4 * 8 * bytes / 2},
      {3, "--tp 3 --recompute", 2 * 4 * (8 + 4) * bytes * 2 / 3},
      {4, "--tp 4 --no-overlap", 2 * 4 * 8 * bytes * 3 / 4},
      {2, "--tp 2 --sequence-parallel megatron", 2 * 4 * 10 * bytes / 2},
      {3, "--tp 3 --sequence-parallel megatron", 2 * 4 * 10 * bytes * 2 / 3},
      {2, "--sp 2", 2 * 4 * 8 * (bytes / 2) / 2},
      {4, "--sp 4", 2 * 4 * 8 * (bytes / 4) * 3 / 4},
      {4, "--tp 2 --sp 2", 2 * 4 * (8 * bytes / 2 / 2 + 8 * (bytes / 2 / 2) / 2)},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.options);
    const std::vector<json> log = log_of(launch(false, c.n), options + c.options);
    ASSERT_FALSE(log.empty());
    const json& summary = log.back()["summary"];
    double sent_by_blocks = 0, sent_again = 0;
    for (const json& row : summary["traffic"]) {
      const std::string tag = row["tag"];
      if (tag.rfind("dp.", 0) != 0) {
        EXPECT_EQ(row["sent_bytes_per_step"], row["predicted_bytes_per_step"]) << row;
      }
      const double sent = row["sent_bytes_per_step"];
      if (tag.rfind("tp.attn", 0) == 0 || tag.rfind("tp.mlp", 0) == 0 || tag.rfind("sp.", 0) == 0) {
        sent_by_blocks += sent;
      }
      if (tag == "tp.regather") sent_again = sent;
    }
    // Of 2 x 2 + 1 gathers, the last is the head's.
    EXPECT_NEAR(sent_by_blocks + sent_again * 4 / 5, c.blocks, 1e-6);
    for (const json& row : summary["memory"]) {
      if (row["category"] == "activations") {
        EXPECT_EQ(row["peak_bytes"], row["predicted_bytes"]) << row;
      }
    }
  }
}

TEST_F(TensorParallel, SamplesTheSameText) {
  std::string expected;
  for (const std::string options :
       {"--ranks 1", "--ranks 2 --tp 2", "--ranks 3 --tp 3 --sequence-parallel megatron", "--ranks 4 --tp 2 --sp 2"}) {
    const Outcome outcome =
        run_command(kProgram + model_ + data() + "--threads 1 --no-gemm-rate --steps 3 --sample 40 " + options);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const size_t begin = outcome.output.find("\nsample\n"), end = outcome.output.find("\n\ncommunication");
    ASSERT_LT(begin, end) << outcome.output;
    const std::string text = outcome.output.substr(begin, end - begin);
    if (expected.empty()) expected = text;
    EXPECT_EQ(text, expected) << options;
  }
}

TEST_F(TensorParallel, WhatCannotBeCutIsRefusedInOneLine) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"--ranks 5 --tp 5", {"--heads 12", "sp x tp = 5", "1, 2, 3, 4, 6, 12"}},
      {"--ranks 16 --tp 4 --sp 4", {"--heads 12", "sp x tp = 16"}},
      {"--ranks 5 --sp 5", {"--seq-len 24", "sp = 5", "1, 2, 3, 4, 6, 8, 12, 24", "--heads 12"}},
      {"--ranks 2 --sequence-parallel megatron", {"--sequence-parallel megatron", "--tp 2"}},
      {"--ranks 4 --tp 2 --dp 4", {"--tp 2", "--dp 4", "= 8, but must be 4"}},
      {"--ranks 4 --tp 3", {"--tp 3", "does not divide 4"}},
      {"--sequence-parallel ring", {"--sequence-parallel ring", "none, megatron"}},
  };
  for (const auto& [options, words] : cases) {
    const Outcome outcome = run_command(kProgram + model_ + data() + options);
    EXPECT_EQ(outcome.exit_code, 2) << options;
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
    for (const std::string& word : words) {
      EXPECT_NE(outcome.output.find(word), std::string::npos) << "no " << word << " in: " << outcome.output;
    }
  }
}

TEST_F(TensorParallel, GroupsThatSpanNodesAreWarnedOf) {
  const auto warned = [&](const std::string& topology) {
    const Outcome outcome = train(launch(false, 4), "--steps 1 --tp 2 --dp 2 --topology " + topology);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output.find("tensor-parallel groups span nodes") != std::string::npos;
  };
  EXPECT_FALSE(warned("2x2"));
  EXPECT_TRUE(warned("4x1"));
}

}  // namespace
}  // namespace sixfold::test
