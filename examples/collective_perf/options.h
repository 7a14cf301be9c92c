// Options of collective_perf.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/observe/record_files.h"
#include "runtime/comm/world.h"

namespace sixfold::collective_perf {

struct PerfOptions {
  comm::WorldOptions world;
  comm::RecordFiles records;
  std::string op = "all_reduce", dtype = "f32", redop = "sum", algorithm = "auto", json, tune;
  std::string versus = "none";  // or "mpi"
  std::string device = "cpu";   // or "cuda", once the options are parsed
  size_t min_bytes = 8, max_bytes = size_t{256} << 20;
  int factor = 2, rounds = 11, warmup = 2, iters = 0, root = 0;
  bool fresh = false, plain_buffers = false, check = true, explain = false;
};

/// Name, in --op, of the exchange that nccl-tests has as sendrecv: every rank sends a buffer to the next rank and
/// receives one from the rank before it, both at once. It has no algorithms.
inline constexpr std::string_view kSendRecv = "send_recv";
inline bool on_gpu(const PerfOptions& options) {
  return options.device == "cuda";
}
/// What --op names, one after another: "all" are the six primitives and send_recv.
std::vector<std::string> operations_of(const PerfOptions& options);
/// The primitive of one of them; for send_recv it is Primitive::Send, which counts bytes the same way.
comm::Primitive parse_operation(std::string_view name);
/// The largest of the sizes min_bytes, min_bytes * factor, ... up to max_bytes.
size_t largest_bytes(const PerfOptions& options);

struct Parsed {
  std::optional<PerfOptions> options;  // empty: nothing is to be run (--help, an option that does not exist)
  int exit_code = 0;
};
/// Throws ConfigError for impossible values. What CLI11 says of the rest, help included, is printed where `speaks`.
Parsed parse_options(int argc, const char* const* argv, bool speaks);

}  // namespace sixfold::collective_perf
