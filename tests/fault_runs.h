// Runs of fault_check (mpi/fault_check.cpp), and that they leave nothing behind.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "runtime/comm/host/progress.h"
#include "runtime/comm/observe/process_identity.h"
#include "tests/subprocess.h"

namespace sixfold::test {

inline constexpr double kTimeout = 2;

inline const std::string kFaultCheck = SIXFOLD_BUILD_DIR "/fault_check ";

inline std::string fault_check(const std::string& what) {
  return kFaultCheck + what + " --timeout " + std::to_string(kTimeout);
}

/// Numbers that follow `word` in the output.
inline std::vector<double> values_after(const std::string& output, const std::string& word) {
  std::vector<double> values;
  for (size_t at = output.find(word); at != std::string::npos; at = output.find(word, at + 1)) {
    values.push_back(std::stod(output.substr(at + word.size())));
  }
  return values;
}

inline void expect_processes_ended(const Outcome& outcome, size_t num_ranks) {
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

inline std::set<std::string> names_in(const std::string& folder) {
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

}  // namespace sixfold::test
