#include "runtime/comm/world.h"

#include "runtime/comm/host/choice.h"
#include "runtime/comm/host/host_world.h"
#include "runtime/comm/observe/flight_report.h"
#include "runtime/comm/observe/profile_file.h"
#include "runtime/core/env.h"

namespace sixfold::comm {

namespace {

bool under_launcher(const WorldOptions& options) {
  return options.num_ranks == 0 && read_environment().launcher_world_size.has_value();
}

void check_forced_links(const WorldOptions& options) {
  if (!under_launcher(options)) {
    throw ConfigError("--force-mpi-links: needs ranks started by mpirun, these are threads (allowed: without it)");
  }
  if (options.backend == BackendKind::Mpi) {
    throw ConfigError("--force-mpi-links: not together with --comm mpi, which has no links of ours (allowed: own)");
  }
  if (options.topology.empty()) {
    throw ConfigError("--force-mpi-links: needs --topology NODESxRANKS, whose nodes are linked by MPI");
  }
}

}  // namespace

void check_world_options(const WorldOptions& options) {
  if (options.num_ranks < 0) {
    throw ConfigError("--ranks " + std::to_string(options.num_ranks) +
                      ": allowed are 1 and more, or 0 for the ranks of mpirun");
  }
  constexpr int kMaxThreadRanks = 1024;
  if (options.num_ranks > kMaxThreadRanks) {
    throw ConfigError("--ranks " + std::to_string(options.num_ranks) + ": allowed are up to " +
                      std::to_string(kMaxThreadRanks) + " threads of one process");
  }
  if (options.num_ranks > 0 && read_environment().launcher_world_size.value_or(1) > 1) {
    throw ConfigError("--ranks " + std::to_string(options.num_ranks) +
                      ": not together with mpirun, which has started " +
                      std::to_string(*read_environment().launcher_world_size) + " ranks (allowed: 0)");
  }
  if (options.timeout_s <= 0) {
    throw ConfigError("--timeout " + std::to_string(options.timeout_s) + ": allowed are positive numbers of seconds");
  }
  if (!options.flight_recorder_dir.empty()) check_flight_folder("--flight-recorder", options.flight_recorder_dir);
  if (options.links.num_slots < 2) {
    throw ConfigError("links with " + std::to_string(options.links.num_slots) + " slots: allowed are 2 and more");
  }
  if (options.links.slot_bytes == 0 || options.links.slot_bytes % 64 != 0) {
    throw ConfigError("links with slots of " + std::to_string(options.links.slot_bytes) +
                      " bytes: allowed are multiples of 64");
  }
  if (!options.topology.empty()) Topology::parse(options.topology, planned_world_size(options));
  if (options.force_mpi_links) check_forced_links(options);
  AlgorithmChoice{options, false};  // reads what it needs
  const bool fixed = options.algorithm != Algorithm::Auto && options.algorithm != Algorithm::Direct;
  if (options.deterministic && fixed) {
    throw ConfigError(
        "--algorithm " + std::string(algorithm_name(options.algorithm)) +
        ": not together with --deterministic, whose order of additions is that of direct (allowed: auto, direct)");
  }
  if (options.backend == BackendKind::Mpi && options.deterministic) {
    throw ConfigError(
        "--comm mpi: not together with --deterministic, MPI does not promise an order of additions (allowed: own)");
  }
  if (options.backend == BackendKind::Mpi && !options.emulate_links.empty()) {
    throw ConfigError("--emulate-links: not together with --comm mpi, whose links are not ours to pace (allowed: own)");
  }
  if (options.backend == BackendKind::Mpi && options.num_ranks > 0) {
    throw ConfigError("--comm mpi: not together with --ranks, whose ranks are threads (allowed: own)");
  }
#ifndef SIXFOLD_HAS_MPI
  if (options.backend == BackendKind::Mpi) throw ConfigError("--comm mpi: this build has no MPI (allowed: own)");
  if (under_launcher(options) && planned_world_size(options) > 1) {
    throw ConfigError("started by mpirun, but this build has no MPI: use --ranks N, or build with SIXFOLD_MPI=ON");
  }
#endif
}

Profile emulated_profile(const WorldOptions& options) {
  Profile host = load_profile("host");
  host.inter = host.intra;  // between declared nodes, a slice goes the way of all others, but for its pace
  return parse_emulated_links(options.emulate_links, host);
}

ProgressThreadUse parse_progress_thread(const std::string& name) {
  if (name == "auto") return ProgressThreadUse::Auto;
  if (name == "on") return ProgressThreadUse::On;
  if (name == "off") return ProgressThreadUse::Off;
  throw ConfigError("--progress-thread " + name + ": allowed values are auto, on, off");
}

int planned_world_size(const WorldOptions& options) {
  if (options.num_ranks > 0) return options.num_ranks;
  return read_environment().launcher_world_size.value_or(1);
}

int planned_world_rank(const WorldOptions& options) {
  return under_launcher(options) ? read_environment().launcher_rank.value_or(0) : 0;
}

void run_world(const WorldOptions& options, const std::function<void(World&)>& body) {
  check_world_options(options);
#ifdef SIXFOLD_HAS_MPI
  if (under_launcher(options) || options.backend == BackendKind::Mpi) return run_mpi(options, body);
#endif
  WorldOptions threads = options;
  threads.num_ranks = planned_world_size(options);
  run_threads(threads, body);
}

}  // namespace sixfold::comm
