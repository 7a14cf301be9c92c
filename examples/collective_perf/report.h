// What collective_perf prints and writes: a table as nccl-tests has it, and the same as JSON.
#pragma once

#include <optional>
#include <vector>

#include "examples/collective_perf/machine.h"
#include "examples/collective_perf/measure.h"

namespace sixfold::collective_perf {

/// One size.
struct Line {
  uint64_t bytes = 0;
  size_t count = 0;
  std::string algorithm;                           // the one that ran; "p2p" for send_recv, "mpi" for MPI's
  std::optional<double> predicted_seconds;         // with emulated links: what the cost model says
  std::optional<Measured> out_of_place, in_place;  // empty where the primitive has no such form
};

void print_machine(const comm::World& world, const Machine& machine);
/// `options.op` is one operation in all of these.
void print_header(const PerfOptions& options, const comm::World& world);
void print_line(const PerfOptions& options, const Machine& machine, int size, const Line& line);
/// Writes options.json. Throws ConfigError when it cannot.
void write_json(const PerfOptions& options, const comm::World& world, const Machine& machine,
                const std::vector<Line>& lines);

}  // namespace sixfold::collective_perf
