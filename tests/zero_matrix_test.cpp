// train_gpt with every strategy: the run of one rank, whoever keeps what; the same bits where additions have one order;
// bytes and memory as the formulas say.
#include "tests/train_gpt_fixture.h"

namespace sixfold::test {
namespace {

class Zero : public TrainGpt {
 protected:
  // Rows of a rank divide into 1, 2 and 4 micro-batches on 2, 3 and 4 ranks.
  static void SetUpTestSuite() {
    TrainGpt::SetUpTestSuite();
    model_ = "--layers 2 --dim 32 --seq-len 16 --global-batch 48 --eval-windows 6 ";
  }
  static json summary_of(const std::string& start, const std::string& options) {
    const std::vector<json> log = log_of(start, options);
    return log.empty() ? json() : log.back()["summary"];
  }
};

std::string micro_batches(int n, int m) {
  return "--micro-batch " + std::to_string(48 / n / m) + " ";
}

const std::string kNodes = "--topology 2x2 --hsdp ";

TEST_F(Zero, EveryStageIsTheRunOfOneRank) {
  const std::string sgd = "--steps 5 --optimizer sgd --lr 0.5 --warmup 2 --dropout 0.1 ";
  ASSERT_EQ(train(kProgram, sgd + "--dump " + file("reference")).exit_code, 0);
  const auto expect_right = [&](const std::string& start, const std::string& options) {
    SCOPED_TRACE(start + options);
    const Outcome outcome = train(start, sgd + options + "--dump " + file("dump"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    expect_same_run(file("dump"), file("reference"));
  };
  // Together with other axes: layouts_test. Buckets are of a size, or a unit's.
  const std::vector<std::string> sized = {"--bucket-mb 0 ", "--bucket-mb 0.03 --no-overlap ", "--recompute ",
                                          "--bucket-mb 0.1 --check-replicas 2 ", "--algorithm ring "};
  const std::vector<std::string> units = {"--no-overlap ", "--recompute ", "--prefetch 2 --check-replicas 2 ",
                                          "--algorithm ring --prefetch 0 "};
  size_t i = 0;
  const auto options_of = [&](int zero, int n, int m) {
    const std::vector<std::string>& variants = zero == 3 ? units : sized;
    return "--zero " + std::to_string(zero) + " " + micro_batches(n, m) + variants[i++ % variants.size()];
  };
  for (int m : {1, 2, 4}) {
    for (int n : {2, 3, 4}) {
      for (int zero : {1, 2, 3}) expect_right(launch(false, n), options_of(zero, n, m));
    }
    for (int zero : {2, 3}) expect_right(launch(false, 4), kNodes + options_of(zero, 4, m));
  }
  if (kinds_of_ranks().size() < 2) return;
  for (int n : {2, 3, 4}) {
    for (int zero : {1, 2, 3}) expect_right(launch(true, n), options_of(zero, n, 1 << (zero + n) % 3));
  }
  for (const char* zero : {"2 ", "3 "}) {
    expect_right(launch(true, 4), kNodes + "--zero " + zero + micro_batches(4, 2) + "--check-replicas 1 ");
  }
  expect_right(launch(true, 3), "--comm mpi --zero 1 " + micro_batches(3, 2));
  expect_right(launch(true, 3), "--comm mpi --zero 2 " + micro_batches(3, 2));
  expect_right(launch(true, 3), "--comm mpi --zero 3 " + micro_batches(3, 2));
}

TEST_F(Zero, AdamWHasTheLossAndTheNormOfOneRank) {
  const std::vector<json> reference = log_of(kProgram, "--steps 10 --recompute");
  ASSERT_EQ(reference.size(), 11u);
  for (const std::string options : {"--zero 1", "--zero 2", "--zero 3", "--zero 2 --hsdp --topology 2x2"}) {
    const std::vector<json> log = log_of(launch(false, 4), "--steps 10 --micro-batch 6 " + options);
    ASSERT_EQ(log.size(), 11u);
    for (size_t step = 0; step < 10; ++step) {
      for (const char* what : {"loss", "grad_norm"}) {
        const double expected = reference[step][what];
        EXPECT_NEAR(log[step][what], expected, 1e-5 * expected) << options << ", step " << step + 1 << " " << what;
      }
    }
  }
}

// Weights and moments, of every stage at the same number of ranks; HSDP adds node by node, and does so every time.
TEST_F(Zero, DeterministicRunsHaveOneHashOfWeightsAndMoments) {
  const std::string options = "--steps 4 --deterministic --dropout 0.1 ";
  const auto hashes = [&](const std::string& start, const std::string& more) {
    const json summary = summary_of(start, options + more);
    return summary["weights_hash"].get<std::string>() + " " + summary["state_hash"].get<std::string>();
  };
  for (int n = 2; n <= 4; ++n) {
    const std::string rows = micro_batches(n, n == 2 ? 4 : n == 3 ? 2 : 1);
    const std::string expected = hashes(launch(false, n), rows + "--zero 0");
    EXPECT_EQ(expected.size(), 33u);
    EXPECT_NE(expected.substr(0, 16), expected.substr(17));
    for (const char* zero : {"--zero 1 ", "--zero 2 ", "--zero 3 "}) {
      EXPECT_EQ(hashes(launch(false, n), rows + zero), expected) << n << " ranks, " << zero;
    }
    if (kinds_of_ranks().size() > 1) {
      EXPECT_EQ(hashes(launch(true, n), rows + "--zero " + std::to_string(n - 1)), expected);
    }
    if (n != 3) continue;  // the whole list once is enough
    EXPECT_EQ(hashes(launch(false, n), rows + "--zero 3 --prefetch 2 --recompute"), expected);
    EXPECT_EQ(hashes(launch(false, n), rows + "--zero 2 --bucket-mb 0 --threads 2"), expected);
    EXPECT_EQ(hashes(launch(false, n), rows + "--zero 1 --bucket-mb 0.03 --no-overlap"), expected);
  }
  const std::string hybrid = hashes(launch(false, 4), micro_batches(4, 2) + kNodes + "--zero 2");
  EXPECT_EQ(hashes(launch(false, 4), micro_batches(4, 2) + kNodes + "--zero 2"), hybrid);
  EXPECT_EQ(hashes(launch(false, 4), micro_batches(4, 2) + kNodes + "--zero 3 --no-overlap"), hybrid);

  const std::string bf16 = hashes(launch(false, 3), micro_batches(3, 2) + "--grad-dtype bf16");
  for (const char* zero : {"--zero 1 ", "--zero 2 ", "--zero 3 "}) {
    EXPECT_EQ(hashes(launch(false, 3), micro_batches(3, 2) + "--grad-dtype bf16 " + zero), bf16) << zero;
  }
}

TEST_F(Zero, SendsAndKeepsWhatTheFormulasSay) {
  for (const std::string zero : {"0", "1", "2", "3", "2 --hsdp --topology 2x2", "3 --hsdp --topology 2x2"}) {
    SCOPED_TRACE("--zero " + zero);
    const int n = zero.size() > 1 ? 4 : 3;
    const std::string bucket = zero[0] == '3' ? "" : "--bucket-mb 0.03 ";
    const std::string options = "--steps 3 --algorithm ring " + bucket + micro_batches(n, 2);
    const json summary = summary_of(launch(false, n), options + "--zero " + zero);
    ASSERT_FALSE(summary.is_null());
    EXPECT_GE(summary["traffic"].size(), zero == "0" ? 1u : 2u);
    for (const json& row : summary["traffic"]) {
      const double predicted = row["predicted_bytes_per_step"].get<double>();
      const double padding = row["padding_bytes_per_step"].get<double>();
      EXPECT_GT(predicted, 0);
      EXPECT_LT(padding, 0.01 * predicted);
      // An AllReduce cuts a shard into as many parts as there are nodes: within an element of each of 15 buckets.
      const double slack = row["tag"] == "hsdp.grads" ? 15 * 4 : 1e-6;
      EXPECT_NEAR(row["sent_bytes_per_step"], predicted + padding, slack) << row;
    }
    for (const json& row : summary["memory"]) {
      if (row["predicted_bytes"].is_null()) continue;
      EXPECT_EQ(row["peak_bytes"], row["predicted_bytes"]) << row;
    }
    EXPECT_GT(summary["resident_bytes"], 0);
  }
}

TEST_F(Zero, Bf16GradientsHalveTheirBytesAndTrainAlike) {
  const std::vector<json> reference = log_of(kProgram, "--steps 10 --optimizer sgd --lr 0.5");
  for (const std::string zero : {"0", "2", "3"}) {
    std::vector<double> bytes;
    for (const char* dtype : {"f32", "bf16"}) {
      const std::vector<json> log =
          log_of(launch(false, 2), "--steps 10 --optimizer sgd --lr 0.5 --zero " + zero + " --grad-dtype " + dtype);
      ASSERT_EQ(log.size(), 11u);
      for (size_t step = 0; step < 10; ++step) {
        // 2^-8 of each gradient, of either sign: far less in a loss.
        EXPECT_NEAR(log[step]["loss"], reference[step]["loss"], 2e-3) << "step " << step + 1;
        EXPECT_NEAR(log[step]["grad_norm"], reference[step]["grad_norm"],
                    2e-2 * reference[step]["grad_norm"].get<double>());
      }
      bytes.push_back(log.back()["summary"]["traffic"][0]["sent_bytes_per_step"]);
    }
    EXPECT_EQ(bytes[0], 2 * bytes[1]);
  }
}

TEST_F(Zero, DivergedStepsAreSkippedAndCounted) {
  for (const std::string zero : {"1", "2", "3"}) {
    const std::vector<json> log =
        log_of(launch(false, 3), "--steps 6 --optimizer sgd --lr 1e30 --warmup 0 --clip 0 --zero " + zero);
    ASSERT_EQ(log.size(), 7u);
    EXPECT_TRUE(log[0]["grad_norm"].is_number());
    EXPECT_TRUE(log[5]["grad_norm"].is_null());
    EXPECT_EQ(log[6]["summary"]["skipped_steps"], 5);
  }
}

TEST_F(Zero, SamplesTheSameTextAndPrintsItsTables) {
  std::string expected;
  for (const std::string zero : {"0", "1", "2", "3"}) {
    const Outcome outcome =
        run_command(launch(false, 2) + model_ + data() + "--threads 1 --deterministic --steps 3 --sample 20 --zero " +
                    zero + (zero == "0" ? "" : " --no-gemm-rate"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const size_t begin = outcome.output.find("\nsample\n"), end = outcome.output.find("\n\ncommunication");
    ASSERT_LT(begin, end) << outcome.output;
    const std::string text = outcome.output.substr(begin, end - begin);
    if (zero == "0") expected = text;
    EXPECT_EQ(text, expected);
    EXPECT_NE(outcome.output.find("beside the formula"), std::string::npos);
  }
}

}  // namespace
}  // namespace sixfold::test
