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
    if (row.tag != "perf" || row.backend == "mpi") continue;
    if (row.backend == "nccl") return row.backend;
    return row.primitive == comm::Primitive::Send ? "p2p" : std::string(comm::algorithm_name(row.algorithm));
  }
  return "mpi";
}

/// What takes part in the measurements of one rank, of all sizes and operations.
struct Bench {
  Bench(const PerfOptions& options, comm::World& world_)
      : world(world_),
        group(world.open_group(options.world.backend, true)),
        clock(world.open_group(comm::BackendKind::Host, false)),
        buffers(options, world),
        machine(on_gpu(options) ? measure_gpu(world, clock, world.gpu_use()->num_sharing)
                                : measure_machine(world, clock, options.world.timeout_s)) {
    if (options.versus != "none") versus.emplace(world.open_group(comm::BackendKind::Mpi, true));
  }
  bool speaks() const { return world.rank() == 0; }

  comm::World& world;
  comm::Communicator group, clock;
  std::optional<comm::Communicator> versus;
  Buffers buffers;
  Machine machine;
};

Line measure_size(const PerfOptions& options, Bench& bench, size_t bytes) {
  comm::World& world = bench.world;
  const comm::Primitive primitive = parse_operation(options.op);
  Line line;
  for (bool in_place : {false, true}) {
    const bool nccl = world.gpu_use() != nullptr && world.gpu_use()->mode == comm::GpuMode::Nccl;
    const bool refused = nccl && primitive == comm::Primitive::AllToAll;
    if (!Operation::exists(primitive, in_place) || (in_place && refused)) continue;
    Operation operation(options, world, bench.buffers, bytes, in_place);
    world.comm_table().reset();
    const Measured m = measure(options, operation, bench.group, bench.versus ? &*bench.versus : nullptr, bench.clock);
    (in_place ? line.in_place : line.out_of_place) = m;
    line.bytes = operation.bytes();
    line.count = operation.count();
    line.algorithm = algorithm_that_ran(world);
  }
  const bool has_schedule = options.world.backend == comm::BackendKind::Own && primitive != comm::Primitive::Send;
  if (!options.world.emulate_links.empty() && has_schedule) {
    const comm::Algorithm ran = comm::parse_algorithm(line.algorithm);
    line.predicted_seconds = predict(options, world.topology(), ran, line.count).seconds;
  }
  return line;
}

/// The table of one operation. Returns the number of wrong elements.
int64_t run_sizes(const PerfOptions& options, Bench& bench) {
  if (bench.speaks()) print_header(options, bench.world);
  std::vector<Line> lines;
  int64_t num_wrong = 0;
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= static_cast<size_t>(options.factor)) {
    const Line line = measure_size(options, bench, bytes);
    for (const auto& measured : {line.out_of_place, line.in_place}) num_wrong += measured ? measured->num_wrong : 0;
    if (bench.speaks()) print_line(options, bench.machine, bench.world.size(), line);
    lines.push_back(line);
  }
  if (bench.speaks() && !options.json.empty()) write_json(options, bench.world, bench.machine, lines);
  return num_wrong;
}

/// Returns the number of wrong elements.
int64_t run_rank(PerfOptions options, comm::World& world) {
  const comm::ClockOffset clock = options.records.any() ? comm::measure_clock_offset(world) : comm::ClockOffset{};
  if (!options.tune.empty()) {
    tune(options, world);
    comm::write_record_files(options.records, world, clock);
    return 0;
  }
  Bench bench(options, world);
  if (bench.speaks()) print_machine(world, bench.machine);
  int64_t num_wrong = 0;
  for (const std::string& operation : operations_of(options)) {
    options.op = operation;
    num_wrong += run_sizes(options, bench);
  }
  comm::write_record_files(options.records, world, clock);
  if (bench.speaks() && options.check) std::printf("# %lld wrong\n", static_cast<long long>(num_wrong));
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
