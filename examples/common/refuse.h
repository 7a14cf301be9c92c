// How a program refuses what cannot be.
#pragma once

#include <chrono>
#include <cstdio>
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

}  // namespace sixfold::examples
