// The table of algorithms in README.md is what the program counts now.
#include <fstream>
#include <sstream>

#include "tests/harness.h"
#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

TEST(ScheduleTable, IsTheOneInReadme) {
  const Outcome outcome = run_command(SIXFOLD_BUILD_DIR "/schedule_table");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("| all_reduce | ring |"), std::string::npos) << outcome.output;
  std::ifstream file(SIXFOLD_SOURCE_DIR "/README.md");
  std::stringstream readme;
  readme << file.rdbuf();
  EXPECT_NE(readme.str().find("\n\n" + outcome.output + "\n"), std::string::npos) << "README.md lacks this table:\n"
                                                                                  << outcome.output;
}

}  // namespace
}  // namespace sixfold::test
