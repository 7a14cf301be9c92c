// train_gpt on files of tokens: the same tokens train the same, whatever file they are in, and what it says is about
// tokens where they are no bytes.

#include "tests/data_fixture.h"
#include "tests/refusal.h"
#include "tests/train_gpt_fixture.h"

namespace sixfold::test {
namespace {

class TokenData : public TrainGpt {
 protected:
  static void SetUpTestSuite() {
    TrainGpt::SetUpTestSuite();
    std::ifstream text(folder_ / "text", std::ios::binary);
    tokens_.assign(std::istreambuf_iterator<char>(text), {});
    write("u16.bin", little_endian(tokens_, 2));
    write("llmc.bin", llmc_header(20240520, 1, static_cast<int64_t>(tokens_.size())) + little_endian(tokens_, 2));
  }
  static void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  /// Three steps, without --quiet.
  static Outcome run(const std::string& start, const std::string& options) {
    return run_command(start + kModel + "--threads 1 --steps 3 --no-gemm-rate --log " + file("log") + " " + options);
  }
  static std::vector<json> lines_of_log() {
    std::vector<json> lines;
    std::ifstream log(file("log"));
    for (std::string line; std::getline(log, line);) lines.push_back(json::parse(line));
    return lines;
  }
  static void expect_same_run_as(const std::vector<json>& expected) {
    const std::vector<json> lines = lines_of_log();
    ASSERT_EQ(lines.size(), 4u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(lines[i]["loss"], expected[i]["loss"]);  // to the bit
      EXPECT_EQ(lines[i]["grad_norm"], expected[i]["grad_norm"]);
    }
    for (const char* what : {"val_loss", "weights_hash", "parameters"}) {
      EXPECT_EQ(lines[3]["summary"][what], expected[3]["summary"][what]) << what;
    }
  }

  static inline std::vector<int64_t> tokens_;
};

TEST_F(TokenData, EveryFormatTrainsTheSame) {
  const Outcome text = run(kProgram, "--data " + file("text") + " --sample 20");
  ASSERT_EQ(text.exit_code, 0) << text.output;
  expect_mentions(text.output, {"nats per byte", "\nsample\n", "vocabulary 256"});
  const std::vector<json> expected = lines_of_log();
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_NEAR(expected[0]["loss"], std::log(256), 0.1);
  for (const char* data : {"llmc.bin", "u16.bin", "llmc.bin --data-format llmc", "u16.bin --data-format u16"}) {
    SCOPED_TRACE(data);
    const Outcome outcome = run(kProgram, "--data " + file(data));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    expect_mentions(outcome.output, {"validation loss ", "nats per token"});
    EXPECT_EQ(outcome.output.find("nats per byte"), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.find("sample"), std::string::npos) << outcome.output;  // unless asked for
    expect_same_run_as(expected);
  }
}

TEST_F(TokenData, ValidationFromAFileOfItsOwnIsThatOfAHeldOutTail) {
  // What --val-fraction 0.25 holds out, by hand.
  const size_t num_train = tokens_.size() - tokens_.size() / 4;
  const std::vector<int64_t> train(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(num_train));
  const std::vector<int64_t> rest(tokens_.begin() + static_cast<std::ptrdiff_t>(num_train), tokens_.end());
  write("train.bin", little_endian(train, 2));
  write("val.bin", llmc_header(20240520, 1, static_cast<int64_t>(rest.size())) + little_endian(rest, 2));
  ASSERT_EQ(run(kProgram, "--data " + file("u16.bin") + " --val-fraction 0.25").exit_code, 0);
  const std::vector<json> expected = lines_of_log();
  const Outcome outcome = run(kProgram, "--data " + file("train.bin") + " --val-data " + file("val.bin"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  expect_same_run_as(expected);
}

TEST_F(TokenData, TokensAreSampledAsNumbers) {
  const Outcome outcome = run(kProgram, "--sample 5 --vocab 70 --data " + file("u16.bin"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;  // letters are beyond 70
  expect_mentions(outcome.output, {"token 0 is ", "outside of the vocabulary", "0 to 69"});

  write("three.bin", little_endian(std::vector<int64_t>(1000, 300), 2));
  const Outcome three = run(kProgram, "--sample 5 --vocab 301 --lr 0.1 --warmup 0 --data " + file("three.bin"));
  ASSERT_EQ(three.exit_code, 0) << three.output;
  expect_mentions(three.output, {"vocabulary 301", "\nsample\n300 300 300 300 300\n"});  // all that there is to learn
}

TEST_F(TokenData, BytesWorkInALargerVocabulary) {
  const Outcome outcome = run(kProgram, "--sample 50 --vocab 5000 --data " + file("text"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  expect_mentions(outcome.output, {"vocabulary 5000", "nats per byte", "\nsample\n"});
  EXPECT_NEAR(lines_of_log()[0]["loss"], std::log(5000), 0.1);
}

// A token costs 6 x (parameters without positions) + 12 layers x dim x T FLOP.
TEST_F(TokenData, MfuIsTheShareOfTheMatrixProductsRate) {
  const Outcome outcome = run_command(kProgram + "--model tiny --threads 1 --steps 2 --quiet --log " + file("log") +
                                      " --data " + file("llmc.bin"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const json summary = lines_of_log().back()["summary"];
  const double weights = 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128 + 256 * 128;
  EXPECT_EQ(summary["parameters"], weights + 128 * 128);
  const double flops = summary["tokens_per_s"].get<double>() * (6 * weights + 12 * 4 * 128 * 128);
  const double mfu = flops / (summary["gemm_gflops"].get<double>() * 1e9);
  EXPECT_GT(mfu, 0);
  EXPECT_NEAR(summary["mfu"].get<double>(), mfu, 1e-9 * mfu);
}

TEST_F(TokenData, RefusesWhatCannotBeOnce) {
  write("cut.bin", llmc_header(20240520, 1, 1000) + std::string(1000, 'a'));
  write("odd.bin", std::string(1001, 'a'));
  write("high.bin", little_endian(std::vector<int64_t>(1000, 256), 2));
  write("short.bin", little_endian(std::vector<int64_t>(16, 1), 2));
  const std::string data = "--data " + file("u16.bin") + " ";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"--data " + file("cut.bin"), {"--data", "/cut.bin", "says 1000 tokens", "3024 bytes", "has 2024"}},
      {"--data " + file("odd.bin"), {"/odd.bin", "1001 bytes", "even number"}},
      {"--data " + file("high.bin"), {"/high.bin", "token 0 is 256", "0 to 255", "--vocab"}},
      {"--data " + file("text") + " --data-format llmc", {"--data", "/text", "magic number", "20240520"}},
      {"--data " + file("short.bin"), {"/short.bin", "16 tokens", "at least 193 tokens"}},
      {data + "--data-format i32", {"--data-format i32", "auto, text, llmc, u16"}},
      {data + "--val-data " + file("missing"), {"--val-data", "/missing", "no such file"}},
      {data + "--val-data " + file("text"), {"--val-data", "/text", "bytes", "tokens", "two of a kind"}},
      {data + "--val-data " + file("short.bin"), {"--val-data", "/short.bin", "16 tokens", "--seq-len 16 + 1"}},
      {data + "--val-data " + file("llmc.bin") + " --val-fraction 0.1",
       {"--val-fraction 0.1 with --val-data", "alone"}},
      {data + "--val-data " + file("llmc.bin") + " --dump " + file("llmc.bin"), {"--dump", "text of --val-data"}},
      {data + "--model gpt5", {"--model gpt5", "tiny, small, gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1.5b"}},
      {data + "--vocab 0", {"--vocab 0", "whole numbers from 1"}},
  };
  for (const auto& [options, words] : cases) {
    for (const bool processes : kinds_of_ranks()) {
      if (processes && options.find("high.bin") == std::string::npos) continue;  // one is enough
      SCOPED_TRACE(options);
      const Outcome outcome = run_command(launch(processes, processes ? 2 : 1) + kModel + options);
      EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
      EXPECT_EQ(times(outcome.output, "train_gpt: "), 1) << outcome.output;
      expect_mentions(outcome.output, words);
    }
  }
}

}  // namespace
}  // namespace sixfold::test
