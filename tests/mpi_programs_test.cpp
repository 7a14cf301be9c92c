// Ranks as processes: the collective cases under mpirun, who calls MPI after start-up, and how failures end.
#include "runtime/comm/host/progress.h"
#include "tests/harness.h"
#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

#ifdef SIXFOLD_MPIRUN

const std::string kBuild = SIXFOLD_BUILD_DIR "/";

TEST(Mpirun, EveryCollectiveIsExact) {
  for (int n : {1, 2, 3, 4}) {
    const Outcome outcome = run_command(mpirun(n) + kBuild + "comm_mpi_check own");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find(" cases, 0 wrong"), std::string::npos) << outcome.output;
  }
}

TEST(Mpirun, TheYardstickIsExactToo) {
  const Outcome outcome = run_command(mpirun(3) + kBuild + "comm_mpi_check mpi");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

// MPI's profiling interface: our own backend finds its peers through MPI, and then uses none of its collectives. That
// the counter does count shows on the same program with MPI's collectives.
void expect_own_calls_no_mpi_collective(const std::string& program) {
  const std::string counted = mpirun(2, "-x LD_PRELOAD=" + kBuild + "libcollective_counter.so") + program;
  const Outcome own = run_command(counted + "own");
  EXPECT_EQ(own.exit_code, 0) << own.output;
  EXPECT_EQ(times(own.output, "COLLECTIVES 0"), 2) << own.output;
  const Outcome mpi = run_command(counted + "mpi");
  EXPECT_EQ(mpi.exit_code, 0) << mpi.output;
  EXPECT_EQ(times(mpi.output, "COLLECTIVES "), 2) << mpi.output;
  EXPECT_EQ(times(mpi.output, "COLLECTIVES 0"), 0) << mpi.output;
}

TEST(Mpirun, OwnCallsNoMpiCollectiveAfterStartUp) {
  expect_own_calls_no_mpi_collective(kBuild + "comm_mpi_check ");
}

TEST(Mpirun, TrainingOnOwnCallsNoMpiCollectiveAfterStartUp) {
  expect_own_calls_no_mpi_collective(kBuild + "train_gpt --data " SIXFOLD_SOURCE_DIR
                                              "/runtime --layers 1 --heads 1 --dim 16 --seq-len 16 --global-batch 4 "
                                              "--steps 3 --threads 1 --comm ");
}

TEST(Mpirun, AMismatchStopsAllRanksAndNamesBothSides) {
  const double start = comm::seconds_now();
  const Outcome outcome = run_command(mpirun(4) + kBuild + "comm_mpi_check mismatch");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 124) << outcome.output;
  EXPECT_LT(comm::seconds_now() - start, 20.0);  // well before the deadline of 30 s; mpirun's own start-up included
  for (const char* word : {"409598", "409600", "all_reduce", "f32", "rank 0", "rank 1", "rank 2", "rank 3"}) {
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word << " in: " << outcome.output;
  }
}

TEST(Mpirun, AnExceptionOnOneRankEndsTheJob) {
  const Outcome outcome = run_command(mpirun(3) + kBuild + "comm_mpi_check throw");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.exit_code, 124) << outcome.output;
  EXPECT_NE(outcome.output.find("disk full"), std::string::npos) << outcome.output;
}

// Progress threads, within a host and over links by MPI. What they do among threads is progress_thread_test.cpp.
const std::string kWithThread = " --progress-thread on ";
const std::string kMpiLinks = " --topology 2x1 --force-mpi-links ";

TEST(ProgressThreads, EveryCollectiveIsExact) {
  for (const char* what : {"own", "mpi"}) {
    const Outcome outcome = run_command(mpirun(3) + kBuild + "comm_mpi_check " + what + kWithThread);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find(" cases, 0 wrong"), std::string::npos) << outcome.output;
  }
  const Outcome linked =
      run_command(mpirun(4) + kBuild + "comm_mpi_check own --topology 2x2 --force-mpi-links" + kWithThread);
  EXPECT_EQ(linked.exit_code, 0) << linked.output;
  EXPECT_NE(linked.output.find(" cases, 0 wrong"), std::string::npos) << linked.output;
}

TEST(ProgressThreads, EndACollectiveWhileItsRanksCompute) {
  for (const std::string& links : {std::string(), kMpiLinks}) {
    const Outcome outcome = run_command(mpirun(2) + kBuild + "comm_mpi_check compute" + links + kWithThread);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("CHECKED 2 cases, 0 wrong"), std::string::npos) << outcome.output;
  }
}

// No rank ever waits.
TEST(ProgressThreads, HearOfFailuresWhileTheirRanksCompute) {
  for (const std::string& links : {std::string(), std::string(" --topology 2x2 --force-mpi-links ")}) {
    const Outcome failed = run_command(mpirun(4) + kBuild + "comm_mpi_check failed" + links + kWithThread);
    EXPECT_NE(failed.exit_code, 0);
    EXPECT_NE(failed.exit_code, 124) << failed.output;
    // Of three; mpirun gives those that are slow to hear of it a second.
    EXPECT_LE(1, times(failed.output, "stopped, because rank 1 failed: disk full")) << failed.output;
    const Outcome disagreed = run_command(mpirun(4) + kBuild + "comm_mpi_check disagreed" + links + kWithThread);
    EXPECT_NE(disagreed.exit_code, 0);
    EXPECT_NE(disagreed.exit_code, 124) << disagreed.output;
    for (const char* word : {"409598", "409600", "all_reduce", "f32", "rank 0", "rank 1", "rank 2", "rank 3"}) {
      EXPECT_NE(disagreed.output.find(word), std::string::npos) << word << " in: " << disagreed.output;
    }
  }
}

#else

TEST(Mpirun, Skipped) {
  GTEST_SKIP() << "this build has no MPI (SIXFOLD_MPI): nothing was run between processes";
}

#endif

}  // namespace
}  // namespace sixfold::test
