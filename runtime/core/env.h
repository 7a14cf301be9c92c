// The one place that reads the process environment. Nothing here is cached: call once, at start-up.
#pragma once

#include <optional>
#include <string>

namespace sixfold {

struct Environment {
  /// Ranks that a launcher (Open MPI's or MPICH's mpirun, Slurm's srun) has started; empty when started by hand.
  /// Read before MPI is, since a process of `--ranks N` must not call MPI_Init.
  std::optional<int> launcher_world_size;
  std::optional<int> launcher_rank;
  /// How many of them are on this host, where the launcher says so.
  std::optional<int> launcher_local_size;
  /// SIXFOLD_LOG: log level, as set_log_level() takes it. Default "info".
  std::string log_level = "info";
  /// OMP_NUM_THREADS, where set to a positive number.
  std::optional<int> omp_num_threads;
  /// NO_COLOR (https://no-color.org) is set and not empty, or TERM=dumb.
  bool no_color = false;
};

Environment read_environment();

}  // namespace sixfold
