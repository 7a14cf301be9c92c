// collective_perf: how fast the collectives are, like nccl-tests.
//
//   build/collective_perf --ranks 4 --op all_reduce
//   mpirun -n 2 --bind-to none build/collective_perf --fresh --versus mpi
#include <optional>

#include "examples/collective_perf/explain.h"
#include "examples/collective_perf/options.h"
#include "examples/collective_perf/report.h"
#include "runtime/core/log.h"

namespace {

using namespace sixfold;
using namespace sixfold::collective_perf;

/// The algorithm of the operations that have run since the table was reset.
std::string algorithm_that_ran(comm::World& world) {
  for (const comm::CommRow& row : world.comm_table().rows()) {
    if (row.tag == "perf" && row.backend == "own") return std::string(comm::algorithm_name(row.algorithm));
  }
  return "mpi";
}

/// Returns the number of wrong elements.
int64_t run_rank(const PerfOptions& options, comm::World& world) {
  if (!options.tune.empty()) {
    tune(options, world);
    return 0;
  }
  comm::Communicator clock = world.open_group(comm::BackendKind::Own, false);
  std::optional<comm::Communicator> versus;
  if (options.versus != "none") versus.emplace(world.open_group(comm::BackendKind::Mpi, true));
  const bool speaks = world.rank() == 0;
  if (speaks) print_header(options, world);
  std::vector<Line> lines;
  int64_t num_wrong = 0;
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= static_cast<size_t>(options.factor)) {
    Line line;
    for (bool in_place : {false, true}) {
      if (!Operation::exists(comm::parse_primitive(options.op), in_place)) continue;
      Operation operation(options, world, bytes, in_place);
      world.comm_table().reset();
      const Measured m = measure(options, operation, world.group(), versus ? &*versus : nullptr, clock);
      (in_place ? line.in_place : line.out_of_place) = m;
      line.bytes = operation.bytes();
      line.count = operation.count();
      line.algorithm = algorithm_that_ran(world);
      num_wrong += m.num_wrong;
    }
    if (!options.world.emulate_links.empty() && line.algorithm != "mpi") {
      const comm::Algorithm ran = comm::parse_algorithm(line.algorithm);
      line.predicted_seconds = predict(options, world.topology(), ran, line.count).seconds;
    }
    if (speaks) print_line(options, world.size(), line);
    lines.push_back(line);
  }
  if (speaks && options.check) std::printf("# %lld wrong\n", static_cast<long long>(num_wrong));
  if (speaks && !options.json.empty()) write_json(options, world, lines);
  return num_wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const bool speaks = comm::planned_world_rank({}) == 0;  // one rank explains what is wrong
  try {
    const Parsed parsed = parse_options(argc, argv, speaks);
    int exit_code = parsed.exit_code;
    if (parsed.options && parsed.options->explain) {
      if (speaks) explain(*parsed.options);
    } else if (parsed.options) {
      comm::run_world(parsed.options->world, [&](comm::World& world) {
        const int64_t num_wrong = run_rank(*parsed.options, world);
        if (num_wrong > 0 && world.rank() == 0) exit_code = 1;
      });
    }
    return exit_code;
  } catch (const ConfigError& error) {
    if (speaks) log_error(error.what());
    return 2;
  } catch (const std::exception& error) {
    log_error(error.what());
    return 1;
  }
}
