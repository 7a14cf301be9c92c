// Ranks as processes that are killed, exit, or never come: the others leave soon, say who it was and what all were
// doing, and nothing is left behind.
#include <dirent.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "runtime/comm/observe/process_identity.h"
#include "tests/harness.h"
#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

#ifdef SIXFOLD_MPIRUN

constexpr double kTimeout = 2;

const std::string kCheck = SIXFOLD_BUILD_DIR "/fault_check ";

std::string check(const std::string& what) {
  return kCheck + what + " --timeout " + std::to_string(kTimeout);
}

/// Numbers that follow `word` in the output.
std::vector<double> values_after(const std::string& output, const std::string& word) {
  std::vector<double> values;
  for (size_t at = output.find(word); at != std::string::npos; at = output.find(word, at + 1)) {
    values.push_back(std::stod(output.substr(at + word.size())));
  }
  return values;
}

void expect_processes_ended(const Outcome& outcome, size_t num_ranks) {
  const std::vector<double> pids = values_after(outcome.output, "PID ");  // the ranks', and perhaps mpirun's "PID 0"
  EXPECT_GE(pids.size(), num_ranks) << outcome.output;
  comm::ProcessIdentity process = comm::ProcessIdentity::own();
  process.start_ticks = 0;
  for (const double pid : pids) {
    if (pid == 0) continue;
    process.pid = static_cast<int64_t>(pid);
    const double end = comm::seconds_now() + 2;  // a killed process takes a moment to go
    while (!process.has_ended() && comm::seconds_now() < end) usleep(1000);
    EXPECT_TRUE(process.has_ended()) << process.pid;
  }
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

/// That nothing of ours stays in /dev/shm. (What MPI keeps there while it runs has its own names; sockets and memory
/// files have none, and go with their processes.)
class NothingLeft {
 public:
  ~NothingLeft() {
    for (const std::string& name : names_in("/dev/shm")) {
      EXPECT_TRUE(before_.count(name) > 0 || name.find("sixfold") == std::string::npos) << name;
    }
  }

 private:
  std::set<std::string> before_ = names_in("/dev/shm");
};

/// A run of four ranks that rank 2 spoils.
Outcome run_spoilt(const std::string& what) {
  const NothingLeft nothing_left;
  const Outcome outcome = run_command(mpirun(4) + check(what));
  const double end = comm::seconds_now();
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 124) << outcome.output;
  const std::vector<double> fault = values_after(outcome.output, "FAULT ");
  EXPECT_EQ(fault.size(), 1u) << outcome.output;
  if (fault.empty()) return outcome;
  EXPECT_LT(end - fault[0], kTimeout + 2) << outcome.output;
  expect_processes_ended(outcome, 4);
  return outcome;
}

/// A line for every rank, and who it was.
void expect_report(const Outcome& outcome, const std::vector<std::string>& words) {
  EXPECT_EQ(times(outcome.output, "what the ranks of this host were doing"), 1) << outcome.output;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(times(outcome.output, "\n  rank " + std::to_string(rank) + ": "), 1) << outcome.output;
  }
  for (const std::string& word : words)
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word << outcome.output;
}

TEST(Faults, ARankKilledInAnAllReduce) {
  expect_report(run_spoilt("kill"), {"rank 2 is gone", "  rank 2: is gone: its process ",
                                     "under way: all_reduce #2 (dp.grads) of group world, count 1048576, f32, max"});
}

// Ranks that compute hear of it from mpirun, by SIGTERM.
TEST(Faults, ARankKilledWhileTheOthersCompute) {
  expect_report(run_spoilt("busy"), {"SIGTERM", "rank 2 is gone", "  rank 0: computing"});
}

TEST(Faults, ARankThatExitsBeforeAnAllReduce) {
  expect_report(run_spoilt("exit"), {"rank 2 is gone", "last done, ", "all_reduce #1 (dp.grads)",
                                     "all_reduce #2 (dp.grads) of group world"});
}

TEST(Faults, ARankThatReturnsBeforeAnAllReduce) {
  expect_report(run_spoilt("leave"), {"rank 2 has left the World", "  rank 2: has left "});
}

TEST(Faults, ARankThatNeverComes) {
  const std::string folder = testing::TempDir() + "sixfold-faults-" + std::to_string(getpid());
  const Outcome outcome = run_spoilt("never --flight-recorder " + folder);
  expect_report(outcome, {"all_reduce #2 (dp.grads) of group world: nothing moved for 2.", "have not entered it: 2",
                          "  rank 2: computing; HAS NOT ENTERED what is waited for; nothing under way; last done, ",
                          "  rank 0: waiting since 2."});
  std::ifstream file(folder + "/flight-recorder.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  ASSERT_EQ(json.at("ranks").size(), 4u);
  for (size_t rank = 0; rank < 4; ++rank) {
    const nlohmann::json& last = json.at("ranks").at(rank).at("operations").back();
    EXPECT_EQ(last.at("sequence"), rank == 2 ? 1 : 2);
    EXPECT_EQ(last.at("state"), rank == 2 ? "done" : "started");
  }
  std::filesystem::remove_all(folder);
}

TEST(Faults, ASectionStopsTheClock) {
  const Outcome outcome = run_command(mpirun(3) + kCheck + "section --timeout 0.7");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("rank 0 is in section 'save'"), std::string::npos) << outcome.output;
}

// What a signal that comes from outside leaves: `victim` is a shell word for the process that gets it, once the ranks
// are at work.
Outcome run_and_signal(const std::string& signal, const std::string& victim) {
  const NothingLeft nothing_left;
  const std::string output = testing::TempDir() + "sixfold-signal-" + std::to_string(getpid());
  const std::string script = mpirun(3) + check("spin") + " >" + output + " 2>&1 & " + "until grep -q FAULT " + output +
                             " && [ $(grep -c PID " + output + ") -ge 3 ]; do sleep 0.05; done; kill -" + signal + " " +
                             victim + "; wait $!; code=$?; cat " + output + "; exit $code";
  std::ofstream(output + ".sh") << script << "\n";
  const Outcome outcome = run_command("bash " + output + ".sh " + output, 30);
  std::filesystem::remove(output);
  std::filesystem::remove(output + ".sh");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 124) << outcome.output;
  expect_processes_ended(outcome, 3);
  return outcome;
}

TEST(Faults, ControlCEndsAllRanks) {
  run_and_signal("INT", "$!");
}

TEST(Faults, AllRanksKilled) {
  run_and_signal("KILL", "$(sed -n 's/^PID //p' $1)");
}

// mpirun itself cannot be asked to clean up: its ranks notice that it is gone (Open MPI), or each other.
TEST(Faults, OneRankKilledFromOutside) {
  const Outcome outcome = run_and_signal("KILL", "$(sed -n 's/^PID //p' $1 | head -n 1)");
  EXPECT_NE(outcome.output.find(" is gone (its process has ended)"), std::string::npos) << outcome.output;
}

TEST(Faults, ForkedChildrenDoNoHarm) {
  const Outcome outcome = run_command(mpirun(3) + check("fork"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times(outcome.output, "FORKED"), 3) << outcome.output;
  EXPECT_EQ(times(outcome.output, "SIGTERM"), 0) << outcome.output;
}

void expect_flat(const Outcome& outcome, int num_ranks) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times(outcome.output, "GREW 0 descriptors, 0 mappings"), num_ranks) << outcome.output;
}

TEST(Faults, GroupsComeAndGo) {
  const NothingLeft nothing_left;
  expect_flat(run_command(mpirun(4) + kCheck + "splits --rounds 200"), 4);
}

// Ours are memory files (memfd), which the kernel keeps outside of /dev/shm: its size is no limit.
TEST(Faults, ATinyShmIsNoLimit) {
  const std::string tiny = "unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && ";
  if (run_command(tiny + "true'").exit_code != 0) GTEST_SKIP() << "may not mount: /dev/shm stays as large as it is";
  const std::string perf = SIXFOLD_BUILD_DIR "/collective_perf --max-bytes 16777216 --min-bytes 16777216 --rounds 2";
  const Outcome outcome = run_command(tiny + mpirun(4, "--mca btl self,tcp") + perf + "'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("# 0 wrong"), std::string::npos) << outcome.output;
}

TEST(Faults, AProgramRefusesAFolderThatCannotBe) {
  const Outcome outcome =
      run_command(mpirun(2) + SIXFOLD_BUILD_DIR "/train_gpt --steps 1 --flight-recorder /dev/null/x", 30);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_EQ(times(outcome.output, "--flight-recorder /dev/null/x"), 1) << outcome.output;
}

#else

TEST(Faults, Skipped) {
  GTEST_SKIP() << "this build has no MPI (SIXFOLD_MPI): nothing was run between processes";
}

#endif

}  // namespace
}  // namespace sixfold::test
