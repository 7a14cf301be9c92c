// Two hosts, as far as one machine can be two: examples/two_nodes.sh, which checks every collective, times one, and
// trains. Skipped where the system lets nobody make network namespaces.
#include "tests/harness.h"
#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

TEST(TwoNodes, CollectivesAreExactAndTrainingRuns) {
#ifdef SIXFOLD_MPIRUN
  const Outcome outcome = run_command(SIXFOLD_SOURCE_DIR "/examples/two_nodes.sh --run-only " SIXFOLD_BUILD_DIR, 120);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const size_t skipped = outcome.output.find("SKIPPED: ");
  if (skipped != std::string::npos) GTEST_SKIP() << outcome.output.substr(skipped);
  EXPECT_EQ(times(outcome.output, " first\n"), 1) << "two host names: " << outcome.output;
  EXPECT_EQ(times(outcome.output, " second\n"), 1) << outcome.output;
  EXPECT_EQ(times(outcome.output, " cases, 0 wrong over all ranks"), 1) << outcome.output;
  EXPECT_EQ(times(outcome.output, "validation loss"), 1) << outcome.output;
#else
  GTEST_SKIP() << "this build has no MPI (SIXFOLD_MPI)";
#endif
}

}  // namespace
}  // namespace sixfold::test
