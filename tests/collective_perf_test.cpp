// collective_perf as a user runs it: what it refuses, in one line that names the flag; what it prints and writes.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness.h"
#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

const std::string kProgram = SIXFOLD_BUILD_DIR "/collective_perf";

Outcome run_perf(const std::string& arguments) {
  return run_command(kProgram + " " + arguments, 60);
}

TEST(CollectivePerf, RefusesWhatCannotBeInOneLine) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"--op nope", {"--op nope", "all_gather"}},
      {"--algorithm ring --op all_to_all", {"--algorithm ring", "pairwise"}},
      {"--algorithm hierarchical --ranks 3 --topology 2x2", {"--topology 2x2", "1x3, 3x1"}},
      {"--dtype f64", {"--dtype f64", "bf16"}},
      {"--redop avg --dtype i32", {"--redop avg", "sum, min, max, prod"}},
      {"--root 2 --ranks 2", {"--root 2", "0 to 1"}},
      {"--min-bytes 0", {"--min-bytes 0", "from 1"}},
      {"--min-bytes 18446744073709551615", {"--min-bytes 18446744073709551615"}},
      {"--max-bytes 1000000000000000 --ranks 2", {"--max-bytes 1000000000000000", "GiB"}},
      {"--min-bytes 64 --max-bytes 32", {"--min-bytes 64", "32"}},
      {"--ranks abc", {"--ranks abc", "whole numbers"}},
      {"--slot-bytes 100", {"slots of 100 bytes", "multiples of 64"}},
      {"--num-slots 1", {"--num-slots 1", "from 2"}},
      {"--json /nonexistent/x.json", {"--json /nonexistent/x.json"}},
      {"--tune /dev/full", {"--tune /dev/full", "no regular file"}},
      {"--tune x.json --algorithm ring", {"--tune", "--algorithm"}},
      {"--comm mpi --algorithm ring", {"--algorithm ring", "--comm mpi"}},
      {"--tune-file /nonexistent", {"--tune-file /nonexistent"}},
      {"--profile nope", {"--profile nope", "a100-hdr"}},
      {"--emulate-links intra=1", {"--emulate-links intra=1", "inter"}},
      {"--emulate-links intra=1,inter=1e-300", {"1e-6"}},
      {"--explain --json x", {"--explain", "--json"}},
  };
  for (const auto& [arguments, words] : cases) {
    SCOPED_TRACE(arguments);
    const Outcome outcome = run_perf(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
    for (const std::string& word : words) {
      EXPECT_NE(outcome.output.find(word), std::string::npos) << "no " << word << " in: " << outcome.output;
    }
  }
}

TEST(CollectivePerf, WritesWhatItPrints) {
  const std::string file = testing::TempDir() + "sixfold_perf.json";
  const Outcome outcome =
      run_perf("--ranks 3 --op reduce --root 2 --dtype bf16 --max-bytes 5000 --rounds 1 --json " + file);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("# 0 wrong"), std::string::npos) << outcome.output;
  const auto json = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(json["op"], "reduce");
  EXPECT_EQ(json["root"], 2);
  ASSERT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][1]["bytes"], 4096);
  EXPECT_EQ(json["results"][1]["count"], 2048);
  EXPECT_EQ(json["results"][1]["in_place"]["num_wrong"], 0);
  EXPECT_GT(json["results"][1]["out_of_place"]["time_us"], 0);
  std::filesystem::remove(file);
}

// What --tune writes, --tune-file reads: the algorithm of the row is the one that runs.
TEST(CollectivePerf, TunesAndReadsItBack) {
  const std::string file = testing::TempDir() + "sixfold_tune.json";
  std::filesystem::remove(file);
  EXPECT_EQ(run_perf("--ranks 2 --op all_gather --max-bytes 1024 --rounds 1 --tune " + file).exit_code, 0);
  auto json = nlohmann::json::parse(std::ifstream(file));
  ASSERT_EQ(json["rows"].size(), 1u);
  EXPECT_EQ(json["rows"][0]["primitive"], "all_gather");
  json["rows"][0]["algorithm"] = "recursive_doubling";
  std::ofstream(file) << json;
  const Outcome outcome = run_perf("--ranks 2 --op all_gather --max-bytes 1024 --rounds 1 --tune-file " + file);
  EXPECT_NE(outcome.output.find("recursive_doubling"), std::string::npos) << outcome.output;
  std::filesystem::remove(file);
}

TEST(CollectivePerf, ChoosesByEmulatedLinks) {
  const std::string links =
      "--ranks 4 --topology 2x2 --emulate-links intra=300,inter=25,scale=0.01 --rounds 1 --warmup 0 ";
  EXPECT_NE(run_perf(links + "--min-bytes 4194304 --max-bytes 4194304").output.find("hierarchical"), std::string::npos);
  const Outcome small = run_perf(links + "--min-bytes 64 --max-bytes 64 --debug");
  EXPECT_NE(small.output.find("cost model, profile emulated"), std::string::npos) << small.output;
}

TEST(CollectivePerf, ExplainsOneScheduleAndPricesThousandsOfRanks) {
  const Outcome one = run_perf("--ranks 2 --explain --min-bytes 8 --algorithm ring");
  EXPECT_EQ(one.exit_code, 0);
  for (const char* part :
       {"round 1\n  0 > 1", "round 2", "verified: right; 2 rounds a pass; each rank sends 8 to 8 bytes"}) {
    EXPECT_NE(one.output.find(part), std::string::npos) << part << " in " << one.output;
  }
  const Outcome many = run_perf("--ranks 16384 --topology 2048x8 --profile a100-hdr --explain --min-bytes 1073741824");
  EXPECT_EQ(many.exit_code, 0);
  EXPECT_NE(many.output.find("closed form"), std::string::npos) << many.output;
}

}  // namespace
}  // namespace sixfold::test
