// Links between nodes by MPI, on one host: declared nodes that share no memory, so that all but the wire is that of
// several hosts. A run on two hosts is two_nodes_test.cpp.
#include <cstdio>

#include "runtime/comm/host/progress.h"
#include "tests/harness.h"
#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

#ifdef SIXFOLD_MPIRUN

const std::string kBuild = SIXFOLD_BUILD_DIR "/";

struct Nodes {
  int num_ranks;
  const char* topology;
};
constexpr Nodes kNodes[] = {{2, "2x1"}, {3, "3x1"}, {3, "1x3"}, {4, "2x2"}, {4, "4x1"}};

std::string linked_by_mpi(const std::string& topology) {
  return " --topology " + topology + " --force-mpi-links ";
}

TEST(MpiLinks, EveryCollectiveIsExact) {
  for (const Nodes& nodes : kNodes) {
    SCOPED_TRACE(nodes.topology);
    const Outcome outcome =
        run_command(mpirun(nodes.num_ranks) + kBuild + "comm_mpi_check own" + linked_by_mpi(nodes.topology));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find(" cases, 0 wrong"), std::string::npos) << outcome.output;
  }
}

// Few and small slots: every message takes many, all of them are in use, and passes follow one another.
TEST(MpiLinks, SmallSlotsAreExactToo) {
  for (const char* slots : {"--slot-bytes 64 --num-slots 2", "--slot-bytes 1024 --num-slots 2", "--slot-bytes 64"}) {
    SCOPED_TRACE(slots);
    const Outcome outcome =
        run_command(mpirun(4) + kBuild + "comm_mpi_check own --max-count 1009 " + slots + linked_by_mpi("2x2"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find(" cases, 0 wrong"), std::string::npos) << outcome.output;
  }
}

// Ranks on GPUs, for which there are threads of the host: on nodes that share no memory, and on one.
TEST(MpiLinks, CarryWhatIsStagedThroughTheHost) {
  for (const Nodes& nodes : {Nodes{4, "2x2"}, Nodes{2, "1x2"}}) {
    SCOPED_TRACE(nodes.topology);
    const Outcome outcome =
        run_command(mpirun(nodes.num_ranks) + kBuild + "comm_mpi_check staged" + linked_by_mpi(nodes.topology));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("CHECKED 38 cases, 0 wrong"), std::string::npos) << outcome.output;
    EXPECT_EQ(times(outcome.output, "collectives on GPUs: staged"), 1) << outcome.output;
  }
}

// Who sends by MPI, and that nobody calls MPI's collectives: of one node none, of several all.
TEST(MpiLinks, CarryWhatGoesBetweenNodesAndNothingElse) {
  for (const Nodes& nodes : kNodes) {
    SCOPED_TRACE(nodes.topology);
    const Outcome outcome =
        run_command(mpirun(nodes.num_ranks, "-x LD_PRELOAD=" + kBuild + "libcollective_counter.so") + kBuild +
                    "comm_mpi_check own --max-count 5" + linked_by_mpi(nodes.topology));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(times(outcome.output, "COLLECTIVES 0\n"), nodes.num_ranks) << outcome.output;
    const bool one_node = nodes.topology[0] == '1';
    EXPECT_EQ(times(outcome.output, "MESSAGES 0\n"), one_node ? nodes.num_ranks : 0) << outcome.output;
  }
}

TEST(MpiLinks, AMismatchAcrossNodesStopsAllRanks) {
  for (const Nodes& nodes : {Nodes{4, "2x2"}, Nodes{4, "4x1"}}) {
    SCOPED_TRACE(nodes.topology);
    const double start = comm::seconds_now();
    const Outcome outcome =
        run_command(mpirun(nodes.num_ranks) + kBuild + "comm_mpi_check mismatch" + linked_by_mpi(nodes.topology));
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_NE(outcome.exit_code, 124) << outcome.output;
    EXPECT_LT(comm::seconds_now() - start, 10.0);  // the deadline of a wait is 30 s
    for (const char* word : {"409598", "409600", "all_reduce", "f32", "rank 0", "rank 1", "rank 2", "rank 3"}) {
      EXPECT_NE(outcome.output.find(word), std::string::npos) << word << " in: " << outcome.output;
    }
  }
}

TEST(MpiLinks, RanksOfOtherNodesLearnWhoFailed) {
  for (const Nodes& nodes : {Nodes{4, "2x2"}, Nodes{3, "3x1"}}) {
    SCOPED_TRACE(nodes.topology);
    const double start = comm::seconds_now();
    const Outcome outcome =
        run_command(mpirun(nodes.num_ranks) + kBuild + "comm_mpi_check throw" + linked_by_mpi(nodes.topology));
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_NE(outcome.exit_code, 124) << outcome.output;
    EXPECT_LT(comm::seconds_now() - start, 10.0);
    EXPECT_EQ(times(outcome.output, "stopped, because rank 1 failed: disk full"), nodes.num_ranks - 1)
        << outcome.output;
    // On every node of two ranks or more, one of them says what all of it were doing.
    EXPECT_EQ(times(outcome.output, "what the ranks of this host were doing"), nodes.num_ranks == 4 ? 2 : 0)
        << outcome.output;
  }
}

TEST(MpiLinks, ArePacedLikeAllOthers) {
  const Outcome outcome = run_command(mpirun(2) + kBuild + "comm_mpi_check paced" + linked_by_mpi("2x1"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("CHECKED 1 cases, 0 wrong"), std::string::npos) << outcome.output;
}

TEST(MpiLinks, AreRefusedWhereTheyCannotBe) {
  const std::string check = kBuild + "comm_mpi_check ";
  const std::string threads = run_command(check + "own" + linked_by_mpi("1x1")).output;
  EXPECT_NE(threads.find("--force-mpi-links: needs ranks started by mpirun"), std::string::npos) << threads;
  const std::string mpi = run_command(mpirun(2) + check + "mpi" + linked_by_mpi("2x1")).output;
  EXPECT_NE(mpi.find("--force-mpi-links: not together with --comm mpi"), std::string::npos) << mpi;
  const std::string one_node = run_command(mpirun(2) + check + "own --force-mpi-links").output;
  EXPECT_NE(one_node.find("--force-mpi-links: needs --topology"), std::string::npos) << one_node;
}

// The same bits, whatever carries them.
TEST(MpiLinks, TrainingIsTheSame) {
  const std::string program = kBuild + "train_gpt --data " SIXFOLD_SOURCE_DIR
                                       "/runtime --layers 2 --heads 2 --dim 32 --seq-len 32 --global-batch 8 --steps 5 "
                                       "--threads 1 --deterministic --sample 0 --quiet --dump " SIXFOLD_BUILD_DIR;
  const std::string dumps[2] = {SIXFOLD_BUILD_DIR "/mpi_links_with.dump", SIXFOLD_BUILD_DIR "/mpi_links_without.dump"};
  const Outcome with = run_command(mpirun(4) + program + "/mpi_links_with.dump" + linked_by_mpi("2x2"));
  ASSERT_EQ(with.exit_code, 0) << with.output;
  const Outcome without = run_command(mpirun(4) + program + "/mpi_links_without.dump --topology 2x2");
  ASSERT_EQ(without.exit_code, 0) << without.output;
  EXPECT_EQ(with.output, without.output);
  EXPECT_EQ(run_command("cmp " + dumps[0] + " " + dumps[1]).output, "");
  for (const std::string& dump : dumps) EXPECT_EQ(std::remove(dump.c_str()), 0) << dump;
}

#else

TEST(MpiLinks, Skipped) {
  GTEST_SKIP() << "this build has no MPI (SIXFOLD_MPI): nothing was run between processes";
}

#endif

}  // namespace
}  // namespace sixfold::test
