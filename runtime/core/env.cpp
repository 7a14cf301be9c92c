#include "runtime/core/env.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace sixfold {

namespace {
std::optional<int> first_int(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    int value = 0;
    const char* end = text + std::strlen(text);
    const auto parsed = std::from_chars(text, end, value);
    if (parsed.ec == std::errc{} && parsed.ptr == end) return value;
  }
  return std::nullopt;
}
}  // namespace

Environment read_environment() {
  Environment environment;
  // Open MPI, then MPICH and Intel MPI (hydra), then PMIx under srun --mpi=pmix.
  environment.launcher_world_size = first_int({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  environment.launcher_rank = first_int({"OMPI_COMM_WORLD_RANK", "PMI_RANK"});
  environment.launcher_local_size = first_int({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  if (!environment.launcher_world_size && std::getenv("PMIX_RANK") != nullptr) {
    environment.launcher_world_size = first_int({"SLURM_NTASKS"});
    environment.launcher_rank = first_int({"PMIX_RANK"});
  }
  if (const char* level = std::getenv("SIXFOLD_LOG")) environment.log_level = level;
  const auto threads = first_int({"OMP_NUM_THREADS"});
  if (threads && *threads > 0) environment.omp_num_threads = threads;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  environment.no_color =
      (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::strcmp(term, "dumb") == 0);
  return environment;
}

}  // namespace sixfold
