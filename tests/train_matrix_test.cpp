// train_gpt as a user starts it: every way of splitting a run over ranks gives the run of one rank, and what cannot be
// is refused in one message.

#include <chrono>
#include <filesystem>

#include "runtime/core/device.h"
#include "tests/train_gpt_fixture.h"

namespace sixfold::test {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_F(TrainGpt, EverySplitIsTheRunOfOneRank) {
  const Outcome reference = train(kProgram, kSgd + "--dump " + file("reference"));
  ASSERT_EQ(reference.exit_code, 0) << reference.output;
  EXPECT_EQ(count_of(reference.output, "\n"), 1) << reference.output;  // --quiet: the validation loss
  EXPECT_EQ(reference.output.rfind("validation loss ", 0), 0u) << reference.output;

  // All of ranks x algorithm with threads, with processes one of each; bucket size, overlap and micro-batches change
  // with them, so that every pair of an algorithm and a bucket size, and of a bucket size and overlap, comes up.
  const std::vector<std::string> algorithms = {"ring", "tree", "direct"}, buckets = {"0", "0.0625", "64"};
  size_t i = 0;
  for (const bool processes : kinds_of_ranks()) {
    for (int n = processes ? 1 : 2; n <= 4; ++n) {
      for (size_t a = 0; a < algorithms.size(); ++a, ++i) {
        if (processes && a != static_cast<size_t>(n) % 3) continue;
        std::string options =
            "--algorithm " + algorithms[a] + " --bucket-mb " + buckets[(a + static_cast<size_t>(n)) % 3];
        if (i % 2 == 1) options += " --no-overlap";
        if (i % 3 == 1) options += " --micro-batch 1";
        if (i % 5 == 2) options += " --check-replicas 3";
        SCOPED_TRACE(launch(processes, n) + options);
        const Outcome outcome = train(launch(processes, n), kSgd + options + " --dump " + file("dump"));
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        expect_same_run(file("dump"), file("reference"));
      }
    }
  }
#ifdef SIXFOLD_MPIRUN
  const Outcome yardstick = train(launch(true, 3), kSgd + "--comm mpi --bucket-mb 0.0625 --dump " + file("dump"));
  ASSERT_EQ(yardstick.exit_code, 0) << yardstick.output;
  expect_same_run(file("dump"), file("reference"));
#endif
}

TEST_F(TrainGpt, AdamWHasTheLossAndTheNormOfOneRank) {
  const std::vector<json> reference = log_of(kProgram, "--steps 10");
  ASSERT_EQ(reference.size(), 11u);
  EXPECT_LT(reference[9]["loss"], reference[0]["loss"]);
  for (const bool processes : kinds_of_ranks()) {
    for (int n = processes ? 3 : 2; n <= (processes ? 3 : 4); ++n) {
      const std::vector<json> log =
          log_of(launch(processes, n), "--steps 10 --algorithm " + std::string(n == 3 ? "tree" : "ring"));
      ASSERT_EQ(log.size(), 11u);
      for (size_t step = 0; step < 10; ++step) {
        EXPECT_EQ(log[step]["step"], step + 1);
        for (const char* what : {"loss", "grad_norm"}) {
          const double expected = reference[step][what];
          EXPECT_NEAR(log[step][what], expected, 1e-5 * expected) << n << " ranks, step " << step + 1 << " " << what;
        }
      }
      const double val_loss = reference[10]["summary"]["val_loss"];
      EXPECT_NEAR(log[10]["summary"]["val_loss"], val_loss, 1e-4 * val_loss);
    }
  }
}

// Bytes counted in the links: 2 (N-1)/N of the gradients, each bucket padded to a multiple of N.
TEST_F(TrainGpt, SendsWhatTheFormulaSays) {
  for (int n = 2; n <= 4; ++n) {
    const std::vector<json> log = log_of(launch(false, n), "--steps 3 --algorithm ring --bucket-mb 64");
    const json& summary = log.back()["summary"];
    const int64_t parameter_bytes = summary["parameters"].get<int64_t>() * 4;
    // 256 x 32 + 16 x 32 + 2 x (12 x 32^2 + 13 x 32) + 2 x 32
    EXPECT_EQ(parameter_bytes, 4 * 34176);
    int num_rows = 0;
    for (const json& row : summary["comm"]) {
      if (row["tag"] != "dp.grads") continue;
      ++num_rows;
      const double padded = std::ceil(static_cast<double>(parameter_bytes) / 4 / n) * 4 * n;
      EXPECT_EQ(row["calls_per_step"], 1);
      EXPECT_EQ(row["bytes_per_step"], padded);
      EXPECT_EQ(row["sent_bytes_per_step"], padded * 2 * (n - 1) / n);
      EXPECT_EQ(row["predicted_sent_bytes_per_step"], padded * 2 * (n - 1) / n);
    }
    EXPECT_EQ(num_rows, 1);
    for (const json& row : summary["memory"]) {
      if (row["predicted_bytes"].is_null()) continue;
      EXPECT_NEAR(row["peak_bytes"], row["predicted_bytes"], 64) << row;  // padding
    }
  }
}

TEST_F(TrainGpt, DeterministicRunsHaveOneHashOfWeights) {
  const std::string options = "--steps 5 --deterministic --micro-batch 2 ";
  for (int n : {3, 2}) {
    const auto hash = [&](bool processes, const std::string& more) {
      const std::vector<json> log = log_of(launch(processes, n), options + more);
      return log.empty() ? "none" : log.back()["summary"]["weights_hash"].get<std::string>();
    };
    const std::string expected = hash(false, "");
    EXPECT_EQ(expected.size(), 16u);
    EXPECT_EQ(hash(false, ""), expected);
#ifdef SIXFOLD_MPIRUN
    EXPECT_EQ(hash(true, "--bucket-mb 0"), expected);
    EXPECT_EQ(hash(true, "--bucket-mb 0.0625 --no-overlap"), expected);
#endif
    if (n == 2) continue;  // the whole list once is enough
    for (const char* bucket : {"0", "0.0625", "64"}) {
      for (const char* overlap : {"", " --no-overlap"}) {
        EXPECT_EQ(hash(false, std::string("--bucket-mb ") + bucket + overlap), expected) << bucket << overlap;
      }
    }
    EXPECT_EQ(hash(false, "--threads 2"), expected);
    EXPECT_NE(hash(false, "--seed 2"), expected);
  }
}

TEST_F(TrainGpt, DivergedStepsAreSkippedAndCounted) {
  const std::vector<json> log = log_of(launch(false, 2), "--steps 6 --optimizer sgd --lr 1e30 --warmup 0 --clip 0");
  ASSERT_EQ(log.size(), 7u);
  EXPECT_TRUE(log[0]["grad_norm"].is_number());
  EXPECT_TRUE(log[5]["grad_norm"].is_null());  // JSON has no NaN
  EXPECT_EQ(log[6]["summary"]["skipped_steps"], 5);
}

TEST_F(TrainGpt, OptionsComeFromAFileAndTheCommandLineWins) {
  std::ofstream(file("config")) << "steps = 4\nno-overlap = true\nlr = 0.01\nwarmup = 0\n";
  const std::vector<json> log = log_of(kProgram, "--config " + file("config") + " --steps 3");
  ASSERT_EQ(log.size(), 4u);
  EXPECT_NEAR(log[0]["lr"], 0.01, 1e-8);
  EXPECT_NEAR(log[2]["lr"], 0.001, 1e-8);  // a tenth of --lr, unless given
}

TEST_F(TrainGpt, HelpShowsEveryOption) {
  const Outcome outcome = run_command(kProgram + "--help");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* flag : {"--data",
                           "--layers",
                           "--heads",
                           "--dim",
                           "--seq-len",
                           "--steps",
                           "--global-batch",
                           "--micro-batch",
                           "--lr",
                           "--min-lr",
                           "--warmup",
                           "--weight-decay",
                           "--clip",
                           "--seed",
                           "--dropout",
                           "--dp",
                           "--ranks",
                           "--bucket-mb",
                           "--no-overlap",
                           "--optimizer",
                           "--no-shuffle",
                           "--dump",
                           "--comm",
                           "--algorithm",
                           "--deterministic",
                           "--threads",
                           "--timeout",
                           "--eval-every",
                           "--sample",
                           "--log",
                           "--quiet",
                           "--check-replicas",
                           "--config",
                           "--zero",
                           "--hsdp",
                           "--prefetch",
                           "--grad-dtype",
                           "--recompute",
                           "--tp",
                           "--sp",
                           "--sequence-parallel"}) {
    EXPECT_NE(outcome.output.find(std::string(flag) + " "), std::string::npos) << flag;
  }
  EXPECT_NE(outcome.output.find("--bucket-mb FLOAT=1 "), std::string::npos) << outcome.output;
}

// Seconds within which a refusal ends all ranks. It takes 0.1 s, 2 s under mpirun; the rest is for machines that are
// busy.
constexpr double kPrompt = 15;

struct Refusal {
  std::string options;
  std::vector<std::string> words;  // flag, value, allowed values
};

std::vector<Refusal> refusals(const std::string& folder) {
  std::ofstream(folder + "/empty");
  std::ofstream(folder + "/short") << std::string(100, 'a');
  std::ofstream(folder + "/text") << std::string(10000, 'a');
  std::ofstream(folder + "/unknown_key") << "stepz = 3\n";
  std::filesystem::create_hard_link(folder + "/text", folder + "/other_name");
  return {
      {"--no-such-flag", {"--no-such-flag", "--help"}},
      {"stray", {"stray"}},
      {"--steps abc", {"--steps abc", "whole numbers from 1 to 1000000000"}},
      {"--steps 0", {"--steps 0", "whole numbers from 1 to 1000000000"}},
      {"--steps -3", {"--steps -3", "whole numbers from 1 to 1000000000"}},
      {"--steps", {"--steps"}},
      {"--steps 010", {"--steps 010", "whole numbers"}},  // not 8
      {"--steps 99999999999999999999", {"--steps 99999999999999999999", "to 1000000000"}},
      {"--seed 99999999999999999999", {"--seed 99999999999999999999", "to 18446744073709551615"}},
      {"--threads 100000", {"--threads 100000", "4096"}},
      {"--ranks 5000", {"--ranks 5000", "1024"}},
      {"--lr nan", {"--lr nan", "numbers from 0 on"}},
      {"--lr 0.1 --min-lr 1", {"--min-lr 1", "0 to --lr", "0.1"}},
      {"--dropout 1", {"--dropout 1", "0 <= dropout < 1"}},
      {"--optimizer adam", {"--optimizer adam", "adamw, sgd"}},
      {"--algorithm pairwise", {"--algorithm pairwise", "auto, ring, tree, direct"}},
      {"--comm nccl", {"--comm nccl", "own, mpi"}},
      {"--device gpu", {"--device gpu", "auto, cpu, cuda"}},
      {"--device cpu --dtype bf16", {"--dtype bf16", "on the CPU", "f32"}},
      {"--device cpu --dtype f16", {"--dtype f16", "f32, bf16"}},
      {"--device cpu --gpu-mode staged", {"--gpu-mode staged", "on the CPU", "auto"}},
      {"--heads 12", {"--heads 12", "--dim 32", "1, 2, 4, 8, 16, 32"}},
      {"--dp 3", {"--dp 3", "1 rank"}},
      {"--micro-batch 5", {"--micro-batch 5", "12", "1, 2, 3, 4, 6, 12"}},
      {"--deterministic --algorithm ring", {"--algorithm ring", "--deterministic", "direct"}},
      {"--zero 4", {"--zero 4", "0 to 3"}},
      {"--prefetch -1", {"--prefetch -1", "from 0"}},
      {"--prefetch 1 --zero 2", {"--prefetch 1 with --zero 2", "--zero 3"}},
      {"--zero 3 --bucket-mb 4", {"--bucket-mb 4 with --zero 3", "--zero 0, 1, 2"}},
      {"--grad-dtype f16", {"--grad-dtype f16", "f32, bf16"}},
      {"--hsdp --zero 1 --ranks 4 --topology 2x2", {"--hsdp", "--zero 1", "--zero 2, 3"}},
      {"--hsdp --zero 2 --ranks 4", {"--hsdp", "1 node", "two nodes or more", "--topology"}},
      {"--comm mpi --algorithm ring", {"--algorithm ring", "--comm mpi", "auto"}},
      {"--timeout 0", {"--timeout 0", "0.001"}},
      {"--val-fraction 2", {"--val-fraction 2", "0.9"}},
      {"--data " + folder + "/missing", {"/missing", "no such file"}},
      {"--data /dev/null", {"--data /dev/null", "no regular file", "a folder of text files"}},
      {"--data " + folder + "/empty", {"/empty", "empty"}},
      {"--data " + folder + "/short", {"/short", "95 bytes", "--global-batch 12", "193 bytes"}},
      {"--config " + folder + "/missing", {"--config", "/missing", "steps = 300"}},
      {"--dump /nonexistent/folder/dump", {"--dump", "/nonexistent/folder", "can be written to"}},
      {"--dump /proc/x", {"--dump /proc/x", "can be written to"}},
      {"--config " + folder + "/unknown_key", {"stepz"}},
      {"--log " + folder, {"--log", "no regular file"}},
      {"--dump /dev/null", {"--dump", "no regular file"}},
      {"--log " + folder + "/out --dump " + folder + "/out", {"--log and --dump", "one file"}},
      {"--data " + folder + "/text --log " + folder + "/text", {"--log", "text of --data"}},
      {"--data " + folder + "/text --log " + folder + "/other_name", {"--log", "text of --data"}},
      {"--data " + folder + " --log " + folder + "/text", {"--log", "a file of --data"}},
  };
}

TEST_F(TrainGpt, WithoutAGpuItSaysSo) {
  if (probe_cuda().num_devices > 0) GTEST_SKIP() << "this machine has a GPU: tests/gpu_check.sh";
  const Outcome refused = run_command(kProgram + kModel + data() + "--device cuda");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(count_of(refused.output, "\n"), 1) << refused.output;
  EXPECT_NE(refused.output.find("--device cuda: " + probe_cuda().problem), std::string::npos) << refused.output;
}

TEST_F(TrainGpt, RefusesWhatCannotBeInOneLine) {
  for (const Refusal& refusal : refusals(folder_)) {
    SCOPED_TRACE(refusal.options);
    const std::string data_option = refusal.options.find("--data") == std::string::npos ? data() : "";
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = run_command(kProgram + kModel + data_option + refusal.options);
    EXPECT_LT(seconds_since(start), kPrompt);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(count_of(outcome.output, "\n"), 1) << outcome.output;
    EXPECT_EQ(count_of(outcome.output, "train_gpt: "), 1) << outcome.output;
    for (const std::string& word : refusal.words) {
      EXPECT_NE(outcome.output.find(word), std::string::npos) << "no " << word << " in: " << outcome.output;
    }
  }
  const Outcome outcome = run_command(kProgram + kModel + data() + "--ranks 8 --heads 12");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(count_of(outcome.output, "train_gpt: "), 1) << outcome.output;
}

// One message, on rank 0 alone, with the product, the flags and the allowed values; every rank ends.
TEST_F(TrainGpt, RefusesOnceUnderMpirun) {
#ifdef SIXFOLD_MPIRUN
  struct Case {
    int ranks;
    Refusal refusal;
  };
  const std::vector<Case> cases = {
      {8, {"--tp 2 --pp 3", {"--pp 3", "--tp 2", "8 ranks", "= 6 does not divide 8", "product is 8", "--dp 0"}}},
      {8, {"--tp 8 --heads 12 --dim 24", {"--heads 12", "sp x tp = 8", "1, 2, 3, 4, 6, 12"}}},
      {4, {"--dp 4 --global-batch 10", {"--global-batch 10", "dp = 4", "8 or 12"}}},
      {4, {"--pp 4 --layers 2", {"--layers 2", "--pp 4", "--layers 4 or more", "--pp 1 to 2"}}},
      {4, {"--no-such-flag", {"--no-such-flag"}}},
      {4, {"--ranks 2", {"--ranks 2", "4"}}},
      {4, {"--data " + file("missing"), {"no such file"}}},
  };
  for (const auto& [ranks, refusal] : cases) {
    SCOPED_TRACE(refusal.options);
    const std::string data_option = refusal.options.find("--data") == std::string::npos ? data() : "";
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = run_command(mpirun(ranks) + kProgram + data_option + refusal.options);
    EXPECT_LT(seconds_since(start), kPrompt);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_EQ(count_of(outcome.output, "train_gpt: "), 1) << outcome.output;
    for (const std::string& word : refusal.words) {
      EXPECT_NE(outcome.output.find(word), std::string::npos) << "no " << word << " in: " << outcome.output;
    }
  }
#else
  GTEST_SKIP() << "this build has no MPI (SIXFOLD_MPI)";
#endif
}

}  // namespace
}  // namespace sixfold::test
