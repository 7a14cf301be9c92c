#include "examples/collective_perf/options.h"

#include <algorithm>
#include <map>

#include "examples/common/option_group.h"
#include "examples/common/outputs.h"
#include "runtime/comm/cuda/gpu_provider.h"
#include "runtime/comm/nccl/stream_queue.h"
#include "runtime/core/device.h"

namespace sixfold::collective_perf {

namespace {

using Group = examples::OptionGroup;

constexpr uint64_t kMaxBytes = uint64_t{1} << 50;

template <typename Values, typename F>
std::vector<std::string> names_of(const Values& values, F&& name) {
  std::vector<std::string> names;
  for (const auto& value : values) names.emplace_back(name(value));
  return names;
}

std::vector<std::string> all_operations() {
  std::vector<std::string> names = names_of(comm::kCollectives, comm::primitive_name);
  names.emplace_back(kSendRecv);
  return names;
}

void add_operation(CLI::App& app, PerfOptions& o) {
  Group group(app, "Operation");
  std::vector<std::string> operations = all_operations();
  operations.emplace_back("all");
  std::vector<std::string> algorithms = names_of(comm::kAlgorithms, comm::algorithm_name);
  algorithms.insert(algorithms.begin(), "auto");
  group.choice("--op", o.op, operations,
               "Primitive; send_recv: each rank sends to the next and receives from the one before, at once; all: one "
               "after another");
  group.choice("--algorithm", o.algorithm, algorithms, "Where --op has it; auto: by size and group");
  group.choice("--dtype", o.dtype, names_of(kAllDTypes, dtype_name), "Elements");
  group.choice("--redop", o.redop, names_of(kAllReduceOps, reduce_op_name), "Reduction");
  group.whole("--root", o.root, 0, "Root of broadcast and reduce");
  group.whole<size_t>("--min-bytes", o.min_bytes, 1, "Smallest buffer", kMaxBytes);
  group.whole<size_t>("--max-bytes", o.max_bytes, 1, "Largest buffer", kMaxBytes);
  group.whole("--factor", o.factor, 2, "From one size to the next", 1024);
}

void add_measuring(CLI::App& app, PerfOptions& o, std::string& comm, std::string& gpu_mode) {
  Group group(app, "Measuring");
  group.whole("--iters", o.iters, 0, "Operations a round; 0: as many as take 4 ms");
  group.whole("--rounds", o.rounds, 1,
              "Rounds that the median is taken over; of operations so long that these would take over 2 s, fewer, down "
              "to 3");
  group.whole("--warmup", o.warmup, 0, "Rounds before those");
  app.add_flag("--check,!--no-check", o.check, "Compare each result with what arithmetic says: #wrong (default: on)")
      ->group("Measuring");
  group.flag("--fresh", o.fresh,
             "Each rank writes its whole input before and reads its whole output after every operation; the same cycle "
             "without the operation is subtracted: what a trainer pays");
  group.flag("--plain-buffers", o.plain_buffers, "Buffers that peers cannot reach: every byte is staged");
  group.choice(
      "--device", o.device, {"auto", "cpu", "cuda"},
      "Where buffers are and collectives run; cuda: a rank has the GPU of its number on the host, and those that are "
      "more than GPUs share them");
  group.choice(
      "--gpu-mode", gpu_mode, {"auto", "shared", "peer", "stepped", "staged"},
      "How ranks on GPUs meet; shared: one launch for threads on one GPU; peer: a launch each, in each other's "
      "memory; stepped: the same where processes share GPUs; staged: through the host; auto: as they can");
  group.choice("--comm", comm, {"own", "mpi", "nccl"}, "Collectives: our own, MPI's, or NCCL's");
  group.choice("--versus", o.versus, {"none", "mpi"},
               "Take turns with this backend, and print the ratio. Open MPI takes its settings from mpirun (-mca "
               "coll_tuned_use_dynamic_rules 1 -mca coll_tuned_allreduce_algorithm 1..6 -mca btl_vader_eager_limit "
               "BYTES ...): examples/collective_perf/best_mpi.sh finds the best for each size");
  group.real("--timeout", o.world.timeout_s, 0.001, 1e6, "0.001 to 1000000",
             "Seconds without any progress after which a wait is an error");
  group.path("--flight-recorder", o.world.flight_recorder_dir,
             "Folder where a run that fails writes flight-recorder.json, the last operations of every rank "
             "(default: none)");
  group.path("--json", o.json, "Write the table to this file (default: none)");
  group.path("--comm-log", o.records.comm_log,
             "Write one JSON object for every operation of every rank (default: none)");
  group.path("--trace", o.records.trace, "Write a timeline of all ranks that ui.perfetto.dev opens (default: none)");
  group.path(
      "--tune", o.tune,
      "Measure every algorithm of --op at every size, and write the quickest into this file; under mpirun, which "
      "has an option of this name, write --tune=FILE (default: none)");
  group.flag("--explain", o.explain, "Print the schedule of --min-bytes and what it would cost; run nothing");
}

void add_ranks(CLI::App& app, PerfOptions& o, std::string& progress_thread) {
  Group group(app, "Ranks and links");
  group.whole("--ranks", o.world.num_ranks, 0, "Ranks as threads; 0: those of mpirun", 1000000);
  group.text("--topology", o.world.topology, "NODESxRANKS",
             "Declare the ranks to be on so many nodes (default: as found)");
  group.flag("--force-mpi-links", o.world.force_mpi_links, "MPI carries what goes between the nodes of --topology");
  group.text("--emulate-links", o.world.emulate_links, "intra=GB/s,inter=GB/s,scale=X",
             "Pace links inside and between nodes to these rates x scale (default: as fast as they are)");
  group.text("--profile", o.world.profile, "NAME|FILE", "Hardware that algorithms are chosen for (default: this host)");
  group.path("--tune-file", o.world.tune_file, "Measured rows that algorithms are chosen by (default: none)");
  group.choice(
      "--progress-thread", progress_thread, {"auto", "on", "off"},
      "A thread of each rank moves its messages while it computes; auto: where there are two cores for each rank");
  group.flag("--debug", o.world.debug, "Say what topology, rings and trees there are, what is chosen and why");
  group.whole<size_t>("--slot-bytes", o.world.links.slot_bytes, 64, "Bytes of a link's slot", size_t{16} << 20);
  group.whole("--num-slots", o.world.links.num_slots, 2, "Slots of a link", 1024);
  group.whole<size_t>("--min-in-place-bytes", o.world.links.min_in_place_bytes, 0,
                      "Operations from here on write their results into the peers' buffers", kMaxBytes);
  group.whole<size_t>("--min-lend-bytes", o.world.links.min_lend_bytes, 0,
                      "Operations from here on, and reductions in place, read in the peers' buffers", kMaxBytes);
}

/// What an option would do nothing beside is refused, not ignored.
void check_combinations(const PerfOptions& o, bool mpi, bool nccl) {
  const auto exclude = [](bool both, const std::string& flag, const std::string& other, const std::string& why) {
    if (both) throw ConfigError(flag + ": not together with " + other + ", " + why);
  };
  const bool tunes = !o.tune.empty(), compares = o.versus != "none";
  exclude(mpi && o.algorithm != "auto", "--algorithm " + o.algorithm, "--comm mpi",
          "which has its own (allowed: auto)");
  exclude(nccl && o.algorithm != "auto", "--algorithm " + o.algorithm, "--comm nccl",
          "which has its own (allowed: auto)");
  exclude(nccl && !on_gpu(o), "--comm nccl", "--device cpu", "which has no GPU (allowed: cuda)");
  const std::string mode(comm::gpu_mode_name(o.world.gpu_mode));
  exclude(mode != "auto" && !on_gpu(o), "--gpu-mode " + mode, "--device cpu", "which has no GPU (allowed: cuda)");
  exclude(mode != "auto" && nccl, "--gpu-mode " + mode, "--comm nccl", "which has its own (allowed: auto)");
  exclude(on_gpu(o) && (mpi || compares), "--device cuda", "--comm mpi or --versus mpi", "which are for host memory");
  exclude(on_gpu(o) && (o.fresh || o.plain_buffers), "--device cuda", "--fresh or --plain-buffers",
          "which are for host memory");
  exclude(on_gpu(o) && (tunes || o.explain), "--device cuda", "--tune or --explain", "which are for the host");
  exclude(on_gpu(o) && !o.world.emulate_links.empty(), "--device cuda", "--emulate-links",
          "which paces links of the host");
  exclude(mpi && compares, "--versus mpi", "--comm mpi", "which would be compared with itself");
  exclude(compares && o.world.num_ranks > 0, "--versus mpi", "--ranks",
          "whose ranks are threads; start them with mpirun");
  exclude(tunes && o.algorithm != "auto", "--tune", "--algorithm", "all algorithms are measured");
  exclude(tunes && mpi, "--tune", "--comm mpi", "which has no algorithms of ours");
  exclude(tunes && compares, "--tune", "--versus", "which measures one algorithm");
  exclude(tunes && !o.json.empty(), "--tune", "--json", "which writes the table of one algorithm");
  const bool has_no_algorithms = o.op == kSendRecv || o.op == "all";
  exclude(has_no_algorithms && o.algorithm != "auto", "--algorithm " + o.algorithm, "--op " + o.op,
          "which has no such choice (allowed: auto)");
  exclude(has_no_algorithms && (tunes || o.explain), "--op " + o.op, tunes ? "--tune" : "--explain",
          "which is for one primitive and its algorithms");
  exclude(o.op == "all" && !o.json.empty(), "--op all", "--json", "which writes the table of one operation");
  exclude(o.explain && (tunes || compares || mpi || !o.json.empty()), "--explain",
          "--tune, --versus, --comm mpi or --json", "which run something");
}

void check_values(const PerfOptions& o) {
  const comm::Algorithm algorithm = comm::parse_algorithm(o.algorithm);
  const int num_ranks = comm::planned_world_size(o.world);
  const comm::Topology topology = o.world.topology.empty() ? comm::Topology::one_node(num_ranks)
                                                           : comm::Topology::parse(o.world.topology, num_ranks);
  if (algorithm != comm::Algorithm::Auto && !comm::builder_applies(comm::parse_primitive(o.op), algorithm, &topology)) {
    std::string allowed = "auto";
    for (comm::Algorithm other : comm::algorithms_of(comm::parse_primitive(o.op), &topology))
      allowed += ", " + std::string(comm::algorithm_name(other));
    throw ConfigError("--algorithm " + o.algorithm + " for --op " + o.op + ": allowed are " + allowed);
  }
  if (o.root >= num_ranks) {
    throw ConfigError("--root " + std::to_string(o.root) + ": allowed are 0 to " + std::to_string(num_ranks - 1));
  }
  if (!kernels::reduce_supported(parse_dtype(o.dtype), parse_reduce_op(o.redop))) {
    throw ConfigError("--redop " + o.redop + " of --dtype " + o.dtype + ": allowed are sum, min, max, prod");
  }
  if (o.explain) return;
  if (o.min_bytes > o.max_bytes) {
    throw ConfigError("--min-bytes " + std::to_string(o.min_bytes) + ": allowed are 1 to --max-bytes, that is " +
                      std::to_string(o.max_bytes));
  }
  // An input and an output; ranks that are processes may be on other machines.
  const double ranks_here = std::max(1, o.world.num_ranks);
  examples::check_memory("--max-bytes " + std::to_string(o.max_bytes),
                         2.0 * static_cast<double>(largest_bytes(o)) * ranks_here);
  examples::check_outputs(
      {{"--json", o.json}, {"--tune", o.tune}, {"--comm-log", o.records.comm_log}, {"--trace", o.records.trace}}, {});
  comm::check_world_options(o.world);
}

void set_gpus(PerfOptions& o) {
  o.world.gpus = comm::make_cuda_provider(o.world.timeout_s);
  // Where our own collectives do not reach, NCCL may serve, which has no algorithms to choose from.
  const bool may = o.algorithm == "auto" && comm::planned_world_size(o.world) > 1;
  if (o.world.backend == comm::BackendKind::Nccl || may) o.world.nccl = comm::make_cuda_nccl_setup();
}

}  // namespace

std::vector<std::string> operations_of(const PerfOptions& o) {
  return o.op == "all" ? all_operations() : std::vector<std::string>{o.op};
}

comm::Primitive parse_operation(std::string_view name) {
  return name == kSendRecv ? comm::Primitive::Send : comm::parse_primitive(name);
}

size_t largest_bytes(const PerfOptions& o) {
  const auto factor = static_cast<size_t>(o.factor);
  size_t largest = o.min_bytes;
  while (largest <= o.max_bytes / factor) largest *= factor;
  return largest;
}

Parsed parse_options(int argc, const char* const* argv, bool speaks) {
  CLI::App app{"Times the collectives, like nccl-tests"};
  app.get_formatter()->column_width(32);
  app.get_help_ptr()->group("Help");
  PerfOptions o;
  std::string comm = "own", progress_thread = "auto", gpu_mode = "auto";
  add_operation(app, o);
  add_measuring(app, o, comm, gpu_mode);
  add_ranks(app, o, progress_thread);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    if (speaks) app.exit(help);
    return {std::nullopt, 0};
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string(error.what()) + " (--help lists the options)");
  }
  o.world.progress_thread = comm::parse_progress_thread(progress_thread);
  const std::map<std::string, comm::BackendKind> backends = {
      {"own", comm::BackendKind::Own}, {"mpi", comm::BackendKind::Mpi}, {"nccl", comm::BackendKind::Nccl}};
  o.world.backend = backends.at(comm);
  o.world.gpu_mode = comm::parse_gpu_mode(gpu_mode);
  const DeviceChoice choice = parse_device_choice(o.device);
  o.device = choose_device(choice, choice == DeviceChoice::Cpu ? CudaProbe{} : probe_cuda()).type == DeviceType::Cuda
                 ? "cuda"
                 : "cpu";
  check_combinations(o, comm == "mpi", comm == "nccl");
  if (on_gpu(o)) set_gpus(o);
  o.world.comm_log_bytes = o.records.any() ? comm::kCommLogBytes : 0;
  check_values(o);
  return {o, 0};
}

}  // namespace sixfold::collective_perf
