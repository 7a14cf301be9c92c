// Runs a program of the build folder as a user would, under a deadline.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "runtime/core/error.h"

namespace sixfold::test {

struct Outcome {
  int exit_code = 0;   // 124: it ran past its deadline and was ended
  std::string output;  // stdout and stderr together
};

/// `command` is a shell command line. timeout(1) ends it, and what it has started, after deadline_s.
inline Outcome run_command(const std::string& command, int deadline_s = 60) {
  // mpirun reads its standard input; /dev/null keeps it off the terminal's.
  const std::string bounded = "timeout -k 5 " + std::to_string(deadline_s) + " " + command + " 2>&1 </dev/null";
  FILE* pipe = popen(bounded.c_str(), "r");
  SIXFOLD_CHECK(pipe != nullptr, "popen: " + bounded);
  Outcome outcome;
  std::array<char, 4096> chunk;
  while (const size_t length = fread(chunk.data(), 1, chunk.size(), pipe)) outcome.output.append(chunk.data(), length);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

inline int times(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

#ifdef SIXFOLD_MPIRUN
/// "mpirun -n 4 ..." with what a container and a small machine need.
inline std::string mpirun(int num_ranks, const std::string& more = "") {
  return std::string(SIXFOLD_MPIRUN) + " -n " + std::to_string(num_ranks) +
         " --oversubscribe --bind-to none --allow-run-as-root " + more + " ";
}
#endif

}  // namespace sixfold::test
