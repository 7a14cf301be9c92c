// What runs leave behind: nothing, after signals from outside, forks, groups that come and go, with little /dev/shm.
#include <fstream>

#include "tests/fault_runs.h"
#include "tests/harness.h"

namespace sixfold::test {
namespace {

#ifdef SIXFOLD_MPIRUN

// What a signal that comes from outside leaves: `victim` is a shell word for the process that gets it, once the ranks
// are at work.
Outcome run_and_signal(const std::string& signal, const std::string& victim) {
  const NothingLeft nothing_left;
  const std::string output = testing::TempDir() + "sixfold-signal-" + std::to_string(getpid());
  const std::string script = mpirun(3) + fault_check("spin") + " >" + output + " 2>&1 & " + "until grep -q FAULT " +
                             output + " && [ $(grep -c PID " + output + ") -ge 3 ]; do sleep 0.05; done; kill -" +
                             signal + " " + victim + "; wait $!; code=$?; cat " + output + "; exit $code";
  std::ofstream(output + ".sh") << script << "\n";
  const Outcome outcome = run_command("bash " + output + ".sh " + output, 30);
  std::filesystem::remove(output);
  std::filesystem::remove(output + ".sh");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 124) << outcome.output;
  expect_processes_ended(outcome, 3);
  return outcome;
}

TEST(Cleanup, ControlCEndsAllRanks) {
  run_and_signal("INT", "$!");
}

TEST(Cleanup, AllRanksKilled) {
  run_and_signal("KILL", "$(sed -n 's/^PID //p' $1)");
}

// mpirun itself cannot be asked to clean up: its ranks notice that it is gone (Open MPI), or each other.
TEST(Cleanup, OneRankKilledFromOutside) {
  const Outcome outcome = run_and_signal("KILL", "$(sed -n 's/^PID //p' $1 | head -n 1)");
  EXPECT_NE(outcome.output.find(" is gone (its process has ended)"), std::string::npos) << outcome.output;
}

TEST(Cleanup, ForkedChildrenDoNoHarm) {
  const Outcome outcome = run_command(mpirun(3) + fault_check("fork"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times(outcome.output, "FORKED"), 3) << outcome.output;
  EXPECT_EQ(times(outcome.output, "SIGTERM"), 0) << outcome.output;
}

TEST(Cleanup, ForkedChildrenDoNoHarmBesideProgressThreads) {
  const Outcome outcome = run_command(mpirun(3) + fault_check("fork --progress-thread on"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times(outcome.output, "FORKED"), 3) << outcome.output;
}

void expect_flat(const Outcome& outcome, int num_ranks) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times(outcome.output, "GREW 0 descriptors, 0 mappings"), num_ranks) << outcome.output;
}

TEST(Cleanup, GroupsComeAndGo) {
  const NothingLeft nothing_left;
  expect_flat(run_command(mpirun(4) + kFaultCheck + "splits --rounds 200"), 4);
  expect_flat(run_command(mpirun(4) + kFaultCheck + "splits --rounds 100 --progress-thread on"), 4);
}

// Ours are memory files (memfd), which the kernel keeps outside of /dev/shm: its size is no limit.
TEST(Cleanup, ATinyShmIsNoLimit) {
  const std::string tiny = "unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && ";
  if (run_command(tiny + "true'").exit_code != 0) GTEST_SKIP() << "may not mount: /dev/shm stays as large as it is";
  const std::string perf = SIXFOLD_BUILD_DIR "/collective_perf --max-bytes 16777216 --min-bytes 16777216 --rounds 2";
  const Outcome outcome = run_command(tiny + mpirun(4, "--mca btl self,tcp") + perf + "'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("# 0 wrong"), std::string::npos) << outcome.output;
}

#else

TEST(Cleanup, Skipped) {
  GTEST_SKIP() << "this build has no MPI (SIXFOLD_MPI): nothing was run between processes";
}

#endif

}  // namespace
}  // namespace sixfold::test
