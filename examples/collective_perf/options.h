// Options of collective_perf.
#pragma once

#include <optional>
#include <string>

#include "runtime/comm/world.h"

namespace sixfold::collective_perf {

struct PerfOptions {
  comm::WorldOptions world;
  std::string op = "all_reduce", dtype = "f32", redop = "sum", algorithm = "auto", json, tune;
  std::string versus = "none";  // or "mpi"
  size_t min_bytes = 1024, max_bytes = size_t{64} << 20;
  int factor = 4, rounds = 11, warmup = 2, iters = 0, root = 0;
  bool fresh = false, plain_buffers = false, check = true, explain = false;
};

struct Parsed {
  std::optional<PerfOptions> options;  // empty: nothing is to be run (--help, an option that does not exist)
  int exit_code = 0;
};
/// Throws ConfigError for impossible values. What CLI11 says of the rest, help included, is printed where `speaks`.
Parsed parse_options(int argc, const char* const* argv, bool speaks);

}  // namespace sixfold::collective_perf
