// collective_perf as a user runs it: what it refuses, in one line that names the flag; what it prints and writes.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/core/device.h"
#include "tests/harness.h"
#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

const std::string kProgram = SIXFOLD_BUILD_DIR "/collective_perf";

Outcome run_perf(const std::string& arguments) {
  return run_command(kProgram + " " + arguments, 60);
}

/// What --json writes. `launcher`: how the ranks are started, where not by --ranks.
nlohmann::json json_of(const std::string& arguments, const std::string& launcher = "") {
  const std::string file = testing::TempDir() + "sixfold_perf.json";
  const Outcome outcome = run_command(launcher + kProgram + " " + arguments + " --json " + file, 60);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("# 0 wrong"), std::string::npos) << outcome.output;
  auto json = nlohmann::json::parse(std::ifstream(file));
  std::filesystem::remove(file);
  return json;
}

TEST(CollectivePerf, RefusesWhatCannotBeInOneLine) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"--op nope", {"--op nope", "all_gather", "send_recv", "all"}},
      {"--op send_recv --algorithm ring", {"--algorithm ring", "--op send_recv", "auto"}},
      {"--op all --algorithm ring", {"--algorithm ring", "--op all"}},
      {"--op send_recv --tune x.json", {"--op send_recv", "--tune"}},
      {"--op all --explain", {"--op all", "--explain"}},
      {"--op all --json x.json", {"--op all", "--json"}},
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
      {"--gpu-mode fast", {"--gpu-mode fast", "auto, shared, peer, stepped, staged"}},
      {"--gpu-mode staged", {"--gpu-mode staged", "--device cpu", "allowed: cuda"}},
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

TEST(CollectivePerf, WithoutAGpuItSaysSoAndUsesTheCpu) {
  if (probe_cuda().num_devices > 0) GTEST_SKIP() << "this machine has a GPU: tests/gpu_check.sh";
  const Outcome automatic = run_perf("--device auto --ranks 2 --max-bytes 8 --rounds 1");
  EXPECT_EQ(automatic.exit_code, 0) << automatic.output;
  EXPECT_NE(automatic.output.find("no GPU to use (" + probe_cuda().problem + ")"), std::string::npos);
  EXPECT_NE(automatic.output.find("# 0 wrong"), std::string::npos);
  for (const char* arguments : {"--device cuda --ranks 2", "--device auto --comm nccl --ranks 2"}) {
    const Outcome refused = run_perf(arguments);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_NE(refused.output.find("allowed"), std::string::npos) << refused.output;
  }
}

TEST(CollectivePerf, WritesWhatItPrints) {
  const auto json =
      json_of("--ranks 3 --op reduce --root 2 --dtype bf16 --min-bytes 1024 --max-bytes 5000 --factor 4 --rounds 1");
  EXPECT_EQ(json["op"], "reduce");
  EXPECT_EQ(json["root"], 2);
  ASSERT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][1]["bytes"], 4096);
  EXPECT_EQ(json["results"][1]["count"], 2048);
  EXPECT_EQ(json["results"][1]["in_place"]["num_wrong"], 0);
  EXPECT_GT(json["results"][1]["out_of_place"]["time_us"], 0);
}

// nccl-tests: powers of two, and its sendrecv has no form in place and a busbw that is its algbw.
TEST(CollectivePerf, ExchangesWithBothNeighbours) {
  for (int n : {1, 2, 5}) {
    const auto json = json_of("--ranks " + std::to_string(n) + " --op send_recv --max-bytes 300000 --rounds 1");
    ASSERT_EQ(json["results"].size(), 16u);  // 8 B to 256 KiB
    const auto& last = json["results"][15];
    EXPECT_EQ(last["bytes"], 262144);
    EXPECT_EQ(last["algorithm"], "p2p");
    EXPECT_FALSE(last.contains("in_place"));
    EXPECT_EQ(last["out_of_place"]["num_wrong"], 0);
    EXPECT_EQ(last["out_of_place"]["busbw_gbs"], last["out_of_place"]["algbw_gbs"]);
  }
}

TEST(CollectivePerf, RunsAllOperations) {
  const Outcome outcome = run_perf("--ranks 2 --op all --min-bytes 64 --max-bytes 64 --rounds 1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* operation :
       {"broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"}) {
    EXPECT_EQ(times(outcome.output, "# " + std::string(operation) + ", 2 ranks"), 1) << outcome.output;
  }
  EXPECT_EQ(times(outcome.output, "# 0 wrong"), 1) << outcome.output;
}

// Counted by hand for 4 ranks, in bytes of the full buffer and per rank: an all-gather reads 4 blocks in all and writes
// 3 of them on each rank, 16 blocks or 4 full buffers for 4 ranks; a reduce reads 4 full buffers and writes one; ...
TEST(CollectivePerf, ComparesWithTheMemoryOfTheMachine) {
  const std::vector<std::pair<std::string, double>> necessary = {
      {"broadcast", 1},         {"reduce", 1.25},    {"all_reduce", 2}, {"all_gather", 1},
      {"reduce_scatter", 1.25}, {"all_to_all", 1.5}, {"send_recv", 2}};
  for (const auto& [operation, buffers] : necessary) {
    SCOPED_TRACE(operation);
    const auto json = json_of("--ranks 4 --op " + operation + " --min-bytes 65536 --max-bytes 65536 --rounds 1");
    const auto& machine = json["machine"];
    EXPECT_EQ(machine["ranks_on_host"], 4);
    EXPECT_EQ(machine["cores"], std::thread::hardware_concurrency());
    EXPECT_EQ(machine["more_ranks_than_cores"], 4 > std::thread::hardware_concurrency());
    EXPECT_GT(machine["one_way_ns"], 0);
    const auto& line = json["results"][0];
    const auto& measured = line[operation == "send_recv" ? "out_of_place" : "in_place"];
    const double bytes_per_s = machine["host_copy_gbs"].get<double>() * 1e9 / 4;
    const double seconds = measured["time_us"].get<double>() * 1e-6;
    EXPECT_NEAR(measured["memory_share"].get<double>() * seconds * bytes_per_s, buffers * 65536, 1);
  }
  const auto alone = json_of("--ranks 1 --min-bytes 64 --max-bytes 64 --rounds 1");
  EXPECT_TRUE(alone["machine"]["one_way_ns"].is_null());
  EXPECT_EQ(alone["results"][0]["in_place"]["memory_share"], 0);
}

// Links that carry a megabyte a second: an operation of 0.3 s, of which 2 s hold 6.
TEST(CollectivePerf, TakesFewerRoundsOfLongOperations) {
  const std::string slow =
      "--ranks 2 --op broadcast --emulate-links intra=1,inter=1,scale=0.001 --no-check --warmup 0 "
      "--min-bytes 300000 --max-bytes 300000 --json ";
  const std::string file = testing::TempDir() + "sixfold_rounds.json";
  for (const auto& [option, most] : {std::pair{"", 6}, std::pair{" --rounds 1", 1}}) {
    const Outcome outcome = run_perf(slow + file + option);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const int rounds = nlohmann::json::parse(std::ifstream(file))["results"][0]["in_place"]["rounds"];
    EXPECT_GE(rounds, std::min(most, 3));
    EXPECT_LE(rounds, most);
  }
  std::filesystem::remove(file);
}

#ifdef SIXFOLD_MPIRUN
TEST(CollectivePerf, ComparesWithMpi) {
  for (const char* options : {"--versus mpi", "--versus mpi --fresh", "--comm mpi"}) {
    SCOPED_TRACE(options);
    const auto json = json_of(
        std::string("--op send_recv --min-bytes 4096 --max-bytes 300000 --factor 64 --rounds 1 ") + options, mpirun(3));
    ASSERT_EQ(json["results"].size(), 2u);
    EXPECT_EQ(json["results"][1]["algorithm"], options[2] == 'c' ? "mpi" : "p2p");
    EXPECT_EQ(json["results"][1]["out_of_place"]["num_wrong"], 0);
    EXPECT_EQ(json["results"][1]["out_of_place"].contains("versus_ratio"), options[2] == 'v');
    EXPECT_GT(json["machine"]["one_way_ns"], 0);
  }
}

// Where best_mpi.sh finds a line's numbers: words 14, 18 and 19 of 20.
TEST(CollectivePerf, PrintsWhatScriptsRead) {
  const std::string file = testing::TempDir() + "sixfold_words.json";
  const Outcome outcome =
      run_command(mpirun(2) + kProgram + " --versus mpi --min-bytes 64 --max-bytes 64 --rounds 1 --json " + file, 60);
  const auto json = nlohmann::json::parse(std::ifstream(file))["results"][0]["in_place"];
  std::filesystem::remove(file);
  std::istringstream line(outcome.output.substr(outcome.output.find("\n   ") + 1));
  std::string text;
  std::getline(line, text);
  std::istringstream in(text);
  const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  ASSERT_EQ(words.size(), 20u) << outcome.output;
  EXPECT_EQ(words[0], "64");
  EXPECT_NEAR(std::stod(words[13]), json["time_us"], 0.006);
  EXPECT_NEAR(std::stod(words[17]), json["versus_time_us"], 0.006);
  EXPECT_NEAR(std::stod(words[18]), json["versus_ratio"], 0.006);
}

TEST(CollectivePerf, RanksOfTwoHostsShareNoFlag) {
  const auto json = json_of("--topology 2x1 --force-mpi-links --min-bytes 64 --max-bytes 64 --rounds 1", mpirun(2));
  EXPECT_TRUE(json["machine"]["one_way_ns"].is_null());
  EXPECT_EQ(json["machine"]["ranks_on_host"], 1);
}
#endif

// What --tune writes, --tune-file reads: the algorithm of the row is the one that runs.
TEST(CollectivePerf, TunesAndReadsItBack) {
  const std::string file = testing::TempDir() + "sixfold_tune.json";
  std::filesystem::remove(file);
  EXPECT_EQ(run_perf("--ranks 2 --op all_gather --min-bytes 1024 --max-bytes 1024 --rounds 1 --tune " + file).exit_code,
            0);
  auto json = nlohmann::json::parse(std::ifstream(file));
  ASSERT_EQ(json["rows"].size(), 1u);
  EXPECT_EQ(json["rows"][0]["primitive"], "all_gather");
  json["rows"][0]["algorithm"] = "recursive_doubling";
  std::ofstream(file) << json;
  const Outcome outcome =
      run_perf("--ranks 2 --op all_gather --min-bytes 1024 --max-bytes 1024 --rounds 1 --tune-file " + file);
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

/// Runs best_mpi.sh with a program in mpirun's place.
Outcome run_best_mpi(const std::string& stand_in, const std::string& arguments) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "sixfold_best_mpi";
  fs::create_directories(folder);
  std::ofstream(folder / "mpirun") << stand_in;
  fs::permissions(folder / "mpirun", fs::perms::owner_all);
  const Outcome outcome = run_command(
      "env PATH=" + folder.string() +
      ":$PATH " SIXFOLD_SOURCE_DIR "/examples/collective_perf/best_mpi.sh --build " SIXFOLD_BUILD_DIR " " + arguments);
  fs::remove_all(folder);
  return outcome;
}

// An mpirun that prints tables: of 8 bytes in 2 us of ours and 10, 5 or 16 us of MPI's, of 64 bytes in 10 us and 60, 90
// or 30 us. The third set fails.
TEST(BestMpi, FindsTheBestSettingsOfEachSize) {
  const std::string stand_in = R"(#!/bin/sh
case "$*" in
  --version) echo "mpirun (Open MPI) 4.1.4"; exit 0 ;;
  *"-mca small 1"*) eight=5 many=90 ;;
  *"-mca large 1"*) eight=16 many=30 ;;
  *"-mca broken 1"*) echo "no such thing"; exit 1 ;;
  *) eight=10 many=60 ;;
esac
echo "# 2 cores; stand-in"
line="f32 sum -1 direct 1 1 1 1 1 1 0"
echo "  8 2 $line 2 1 1 1 $eight $(awk "BEGIN { print $eight / 2 }") 0"
echo "  64 16 $line 10 1 1 1 $many $((many / 10)) 0"
)";
  const std::string sets = testing::TempDir() + "sixfold_sets";
  std::ofstream(sets) << "-mca small 1\n\n-mca large 1\n-mca broken 1\n";
  const Outcome outcome = run_best_mpi(stand_in, "-n 2 --settings " + sets);
  std::filesystem::remove(sets);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output,
            "# 2 cores; stand-in\n"
            "# left out, for it fails: -mca broken 1: no such thing\n"
            "# all_reduce, 2 ranks; 4 sets of settings\n"
            "#      bytes       ours        MPI   best MPI  best/ours  settings\n"
            "           8       2.00      10.00       5.00       2.50  -mca small 1\n"
            "          64      10.00      60.00      30.00       3.00  -mca large 1\n");
}

TEST(BestMpi, SaysWhatItNeeds) {
  const Outcome other = run_best_mpi("#!/bin/sh\necho HYDRA build details:\n", "");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(other.output,
            "error: needs the mpirun of Open MPI, whose settings these are; found: HYDRA build details:\n");
  const Outcome unknown = run_best_mpi("#!/bin/sh\n", "--op reduce");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.output.find("unknown: --op"), std::string::npos) << unknown.output;
}

}  // namespace
}  // namespace sixfold::test
