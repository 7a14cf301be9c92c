// train_gpt on pipelines: the run of one rank, with every schedule and strategy; what it sends; refusals; a stage that
// is killed.
#include "tests/train_gpt_fixture.h"

namespace sixfold::test {
namespace {

const std::string kRows = "--micro-batch 1 ";  // so that there are several micro-batches

class PipelineProgram : public TrainGpt {
 protected:
  static void SetUpTestSuite() {
    TrainGpt::SetUpTestSuite();
    model_ = "--layers 5 --dim 32 --seq-len 16 --global-batch 8 --dropout 0.1 --eval-windows 6 ";
  }
  static void TearDownTestSuite() {
    model_ = kModel;
    TrainGpt::TearDownTestSuite();
  }
  static json summary_of(const std::vector<json>& log) { return log.empty() ? json() : log.back()["summary"]; }
  static std::string hashes(const std::string& start, const std::string& options) {
    const json summary = summary_of(log_of(start, "--steps 3 --deterministic " + kRows + options));
    return summary["weights_hash"].get<std::string>() + " " + summary["state_hash"].get<std::string>();
  }
};

struct Layout {
  int ranks;
  std::string options;
  bool processes = false;
};

TEST_F(PipelineProgram, EveryLayoutIsTheRunOfOneRank) {
  const std::string sgd = "--steps 5 --optimizer sgd --lr 0.5 --warmup 2 ";
  const std::vector<json> reference = log_of(kProgram, sgd + "--micro-batch 8 --dump " + file("one"));
  // Others, drawn at random, as threads: layouts_test.
  std::vector<Layout> layouts = {{8, "--pp 2 --zero 3 --hsdp --topology 4x2"},
                                 {8, "--pp 2 --tp 2 --sequence-parallel megatron --zero 1"},
                                 {8, "--pp 2 --sp 2"},
                                 {8, "--pp 4 --tp 2 --sequence-parallel megatron --clip 0.1"}};
  if (kinds_of_ranks().size() > 1) {
    layouts.push_back({8, "--pp 2 --tp 2 --sequence-parallel megatron --zero 1", true});
    layouts.push_back({8, "--pp 2 --tp 2 --zero 2", true});
    layouts.push_back({8, "--pp 2 --sp 2", true});
    layouts.push_back({8, "--pp 4 --tp 2", true});
    layouts.push_back({4, "--pp 2 --zero 3 --pp-schedule interleaved", true});
    layouts.push_back({4, "--pp 4 --pp-schedule gpipe --comm mpi", true});
  }
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.options + (layout.processes ? " processes" : " threads"));
    const bool clips = layout.options.find("--clip") != std::string::npos;
    std::vector<json> expected = reference;
    if (clips) expected = log_of(kProgram, sgd + "--micro-batch 8 --clip 0.1 --dump " + file("clipped"));
    const std::vector<json> log =
        log_of(launch(layout.processes, layout.ranks), sgd + kRows + layout.options + " --dump " + file("dump"));
    ASSERT_EQ(log.size(), expected.size());
    expect_same_run(file("dump"), file(clips ? "clipped" : "one"));
    for (size_t step = 0; step < 5; ++step) {
      EXPECT_NEAR(log[step]["loss"], expected[step]["loss"], 1e-5 * expected[step]["loss"].get<double>());
      EXPECT_NEAR(log[step]["grad_norm"], expected[step]["grad_norm"],
                  1e-5 * expected[step]["grad_norm"].get<double>());
    }
    EXPECT_NEAR(summary_of(log)["val_loss"], summary_of(expected)["val_loss"], 1e-4);
  }
}

TEST_F(PipelineProgram, AStrategyDoesNotChangeTheBits) {
  const std::string expected = hashes(launch(false, 4), "--pp 2");
  EXPECT_NE(expected.substr(0, 16), expected.substr(17));
  for (const char* options : {"--zero 1", "--zero 2", "--zero 3", "--zero 3 --no-overlap", "--zero 2 --bucket-mb 0"}) {
    EXPECT_EQ(hashes(launch(false, 4), std::string("--pp 2 ") + options), expected) << options;
  }
  // Micro-batches are added in their order whatever the schedule.
  EXPECT_EQ(hashes(launch(false, 4), "--pp 2 --pp-schedule gpipe"), expected);
  EXPECT_EQ(hashes(launch(false, 4), "--pp 2 --pp-schedule interleaved"), expected);
  if (kinds_of_ranks().size() > 1) {
    EXPECT_EQ(hashes(launch(true, 4), "--pp 2 --zero 3"), expected);
  }
}

TEST_F(PipelineProgram, SendsAndKeepsWhatTheFormulasSay) {
  for (const std::string zero : {"0", "1", "2", "3"}) {
    SCOPED_TRACE("--zero " + zero);
    const json summary = summary_of(log_of(launch(false, 4), kRows + "--pp 2 --steps 3 --algorithm ring --zero " +
                                                                 zero + (zero == "3" ? "" : " --bucket-mb 0.03")));
    ASSERT_FALSE(summary.is_null());
    double activation = 0, gradient = -1, tied = 0;
    for (const json& row : summary["traffic"]) {
      const double predicted = row["predicted_bytes_per_step"], padding = row["padding_bytes_per_step"];
      EXPECT_NEAR(row["sent_bytes_per_step"], predicted + padding, 1e-6) << row;
      if (row["tag"] == "pp.activation") activation = row["sent_bytes_per_step"];
      if (row["tag"] == "pp.gradient") gradient = row["sent_bytes_per_step"];
      if (row["tag"] == "pp.tied") tied = row["sent_bytes_per_step"];
    }
    EXPECT_EQ(activation, 4 * 16 * kDim * 4);  // micro-batches x B T C floats, over the one boundary
    EXPECT_EQ(gradient, 0);                    // the first stage has nobody to send them to
    EXPECT_EQ(tied, 256 * kDim * 4);
    for (const json& row : summary["memory"]) {
      if (row["predicted_bytes"].is_null()) continue;
      EXPECT_EQ(row["peak_bytes"], row["predicted_bytes"]) << row;
    }
  }
}

TEST_F(PipelineProgram, TheLogHasTheBubbleAndEachStepOnce) {
  for (const auto& [m, formula] : {std::pair{2, 0.6}, std::pair{8, 0.273}}) {
    const std::string rows = "--micro-batch " + std::to_string(8 / m);
    const std::vector<json> log = log_of(launch(false, 4), "--pp 4 --steps 4 " + rows);
    ASSERT_EQ(log.size(), 5u);
    const json pipeline = summary_of(log)["pipeline"];
    EXPECT_EQ(pipeline["schedule"], "1f1b");
    EXPECT_EQ(pipeline["stages"], 4);
    EXPECT_EQ(pipeline["micro_batches"], m);
    EXPECT_NEAR(pipeline["bubble_formula"], formula, 5e-4);
    EXPECT_GT(pipeline["bubble"], 0);
    EXPECT_LT(pipeline["bubble"], 1);
  }
  EXPECT_TRUE(summary_of(log_of(kProgram, "--steps 1"))["pipeline"].is_null());
}

TEST_F(PipelineProgram, DivergedStepsAreSkippedOnAllStages) {
  const std::vector<json> log =
      log_of(launch(false, 4), kRows + "--pp 2 --zero 2 --steps 6 --optimizer sgd --lr 1e30 --warmup 0 --clip 0");
  ASSERT_EQ(log.size(), 7u);
  EXPECT_TRUE(log[0]["grad_norm"].is_number());
  EXPECT_TRUE(log[5]["grad_norm"].is_null());
  EXPECT_EQ(log[6]["summary"]["skipped_steps"], 5);
}

TEST_F(PipelineProgram, SamplesTheTextOfOneRankAndDrawsTheSchedule) {
  const auto run = [](const std::string& start, const std::string& options) {
    const Outcome outcome =
        run_command(start + model_ + data() + "--threads 1 --no-gemm-rate --steps 3 --sample 20 " + options);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output;
  };
  const auto sample = [](const std::string& output) {
    const size_t begin = output.find("\nsample\n"), end = output.find("\n\ncommunication");
    EXPECT_LT(begin, end) << output;
    return output.substr(begin, end - begin);
  };
  const std::string expected = sample(run(kProgram, "--micro-batch 8"));
  const std::string drawn = run(launch(false, 4), kRows + "--pp 2 --zero 3 --show-pipeline --pp-schedule interleaved");
  EXPECT_EQ(sample(drawn), expected);
  for (const char* text :
       {"stage 0 | F0.0 F1.0 F0.1", "stage 1 |", "pipeline: interleaved, 2 stages x 2 parts, 4 micro",
        "bubble 11.1% with a backward", "step 3/3"}) {
    EXPECT_EQ(times(drawn, text), 1) << text << drawn;
  }
  EXPECT_EQ(times(drawn, "warning: --zero 3 with --pp 2: each of the 4 micro-batches"), 1) << drawn;
  EXPECT_EQ(sample(run(launch(false, 3), kRows + "--pp 3")), expected);
  // Activations of training are cut along the sequence, those of sampling are not.
  EXPECT_EQ(sample(run(launch(false, 4), kRows + "--pp 2 --tp 2 --sequence-parallel megatron")), expected);
}

TEST_F(PipelineProgram, RefusesWhatCannotBe) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"--ranks 4 --pp 4 --layers 2", {"--layers 2 with --pp 4", "--layers 4 or more", "--pp 1 to 2"}},
      {"--ranks 8 --pp 3", {"--pp 3", "does not divide 8"}},
      {"--ranks 2 --pp 2 --pp-schedule interleaved --global-batch 3 --micro-batch 1",
       {"3 micro-batches", "--pp 2", "2, 4, 6"}},
      {"--ranks 2 --pp 2 --virtual-stages 2",
       {"--virtual-stages 2 with --pp-schedule 1f1b", "with --pp-schedule interleaved"}},
      {"--ranks 2 --pp-schedule gpipe", {"--pp-schedule gpipe with --pp 1", "--pp 2 or more"}},
      {"--ranks 2 --pp 2 --pp-schedule interleaved --virtual-stages 3 --micro-batch 6",
       {"--layers 4", "--virtual-stages 3", "--layers 6 or more"}},
      {"--pp-schedule interleaved", {"--pp 1", "--pp 2 or more"}},
      {"--pp 0", {"--pp"}},
      {"--ranks 2 --pp 2 --pp-schedule zero-bubble", {"--pp-schedule", "gpipe"}}};
  for (const auto& [options, words] : cases) {
    const Outcome outcome = run_command(kProgram + data() + options);
    EXPECT_EQ(outcome.exit_code, 2) << options << outcome.output;
    for (const std::string& word : words) EXPECT_GT(times(outcome.output, word), 0) << word << outcome.output;
    EXPECT_EQ(times(outcome.output, "train_gpt: "), 1) << outcome.output;
  }
}

// Stage 1 of 3 is killed after two seconds of training. The others would train for hours.
TEST_F(PipelineProgram, AKilledStageEndsTheRunAndIsNamed) {
#ifdef SIXFOLD_MPIRUN
  const std::string options =
      model_ + data() + kRows + "--threads 1 --quiet --sample 0 --pp 3 --steps 100000000 --timeout 5";
  const std::string script = "'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec timeout -s KILL 2 " + kProgram + options +
                             "; else exec " + kProgram + options + "; fi'";
  const Outcome outcome = run_command(mpirun(3) + "sh -c " + script, 30);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 124) << outcome.output;
  EXPECT_NE(outcome.output.find("rank 1 is gone"), std::string::npos) << outcome.output;
#else
  GTEST_SKIP() << "this build has no MPI (SIXFOLD_MPI): stages are no processes";
#endif
}

TEST(PipelineBubble, ShowsMeasuredBesideFormula) {
  const Outcome outcome = run_command(SIXFOLD_BUILD_DIR
                                      "/pipeline_bubble --stages 2 --micro-batches 2 --steps 2 --forward-ms 2 "
                                      "--backward-ms 4 --schedule interleaved --virtual-stages 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times(outcome.output, "by the formula 20.0%"), 1) << outcome.output;
  EXPECT_EQ(times(outcome.output, "step "), 2) << outcome.output;
  const Outcome refused = run_command(SIXFOLD_BUILD_DIR "/pipeline_bubble --virtual-stages 2");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
}

}  // namespace
}  // namespace sixfold::test
