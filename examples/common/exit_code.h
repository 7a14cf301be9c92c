// How a program ends: what it refuses, what fails, and the exit codes for both.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>
#include <string>
#include <thread>

#include "runtime/core/error.h"

namespace sixfold::examples {

/// Under mpirun every process finds the same mistake, and one says so. The first process that leaves makes mpirun end
/// the others, so those that have nothing to say give the one that has some time.
inline void refuse(const std::string& program, const ConfigError& error, bool speaks) {
  if (speaks) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  }
}

inline constexpr int kFailed = 1, kImpossible = 2;

/// Calls `body` and returns the exit code of main: what it returns, or that of the exception that left it, after saying
/// why. `speaks`: whether this process refuses for all.
template <typename Body>
int exit_code_of(const std::string& program, bool speaks, const Body& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the user's limit is one that cannot be written, and is told as such
  try {
    const int code = body();
    if (std::cout.flush()) return code;
    throw ConfigError("the standard output cannot be written (is the disk full?)");
  } catch (const ConfigError& error) {
    refuse(program, error, speaks);
    return kImpossible;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: not enough memory\n", program.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
  }
  return kFailed;
}

}  // namespace sixfold::examples
