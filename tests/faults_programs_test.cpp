// Ranks as processes that are killed, exit, leave or never come: the others leave soon, and say who it was and what all
// were doing.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/fault_runs.h"
#include "tests/harness.h"

namespace sixfold::test {
namespace {

#ifdef SIXFOLD_MPIRUN

/// A run of four ranks that rank 2 spoils.
Outcome run_spoilt(const std::string& what) {
  const NothingLeft nothing_left;
  const Outcome outcome = run_command(mpirun(4) + fault_check(what));
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

// The same beside progress threads, which find nothing to drive, or drive while the rank waits for nothing.
TEST(Faults, BesideProgressThreads) {
  const std::string thread = " --progress-thread on";
  expect_report(run_spoilt("kill" + thread), {"rank 2 is gone", "under way: all_reduce #2 (dp.grads) of group world"});
  expect_report(run_spoilt("exit" + thread), {"rank 2 is gone", "last done, "});
  expect_report(run_spoilt("leave" + thread), {"rank 2 has left the World", "  rank 2: has left "});
  expect_report(run_spoilt("never" + thread), {"nothing moved for 2.", "have not entered it: 2"});
}

TEST(Faults, ASectionStopsTheClock) {
  const Outcome outcome = run_command(mpirun(3) + kFaultCheck + "section --timeout 0.7");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("rank 0 is in section 'save'"), std::string::npos) << outcome.output;
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
