#include "runtime/comm/host/host_world.h"

#include <cstdlib>
#include <numeric>

#include "runtime/comm/nccl/nccl_group.h"
#include "runtime/core/cores.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

namespace {
std::shared_ptr<Allocator> allocator_on(std::shared_ptr<SharedRegion> heap) {
  if (heap == nullptr) return std::make_shared<HostAllocator>();
  return std::make_shared<SharedHeap>(std::move(heap));
}

Topology topology_of(const WorldOptions& options, const HostWorldParts& parts) {
  return options.topology.empty() ? parts.topology : Topology::parse(options.topology, parts.size);
}

std::optional<Pacer> pacer_of(const WorldOptions& options, RegionProvider& regions, const Topology& topology) {
  if (options.emulate_links.empty()) return std::nullopt;
  return std::optional<Pacer>(std::in_place, regions, topology, emulated_profile(options));
}

int local_rank(const HostWorldParts& parts) {
  return parts.topology.rail_of(parts.rank);
}

std::optional<CommLog> log_of(const WorldOptions& options, const CommTable& table, RankLock& lock) {
  if (options.comm_log_bytes == 0) return std::nullopt;
  return std::optional<CommLog>(std::in_place, options.comm_log_bytes, table, lock);
}

bool wants_thread(const WorldOptions& options, const HostWorldParts& parts) {
  if (options.progress_thread == ProgressThreadUse::Off) return false;
  if (options.progress_thread == ProgressThreadUse::Auto) {
    const int computing = parts.num_on_machine * options.num_compute_threads;
    if (parts.size == 1 || usable_cores() < 2 * computing) return false;
    if (!parts.may_thread && parts.rank == 0) {
      log_info("no progress thread: this MPI is for one thread (less than MPI_THREAD_SERIALIZED)");
    }
    return parts.may_thread;
  }
  if (!parts.may_thread) {
    throw ConfigError(
        "--progress-thread on: this MPI is for one thread (less than MPI_THREAD_SERIALIZED); allowed values are auto, "
        "off");
  }
  return true;
}
}  // namespace

Topology memory_hosts(const WorldOptions& options, const Topology& found) {
  if (!options.force_mpi_links) return found;
  const Topology declared = Topology::parse(options.topology, found.size());
  std::vector<int> node_of;
  for (int rank = 0; rank < found.size(); ++rank) {
    node_of.push_back(found.node_of(rank) * declared.num_nodes() + declared.node_of(rank));
  }
  return Topology(node_of);
}

HostWorld::HostWorld(const WorldOptions& options, const HostWorldParts& parts)
    : options_(options),
      parts_(parts),
      topology_(topology_of(options, parts)),
      pacer_(pacer_of(options, *parts.regions, topology_)),
      peers_(*parts.regions, parts.rank, parts_.hosts),
      memory_(allocator_on(peers_.own_heap())),
      log_(log_of(options, table_, lock_)),
      watch_(parts.failure->recorder(), table_, comm_log(), options.time_waits),
      choice_(options, parts.oversubscribed),
      engine_(*parts.failure, watch_, lock_, parts.doorbells->own(),
              WaitPolicy{parts.oversubscribed, options.timeout_s}),
      context_{engine_,
               memory_,
               *parts.regions,
               peers_,
               *parts.doorbells,
               topology_,
               parts_.hosts,
               parts.carriers,
               pacer_ ? &*pacer_ : nullptr,
               choice_,
               options.links,
               options.algorithm,
               options.deterministic,
               options.debug} {
  if (options_.gpus != nullptr) {
    gpu_place_ = options_.gpus->place(local_rank(parts_));
    gpu_place_.host = parts_.hosts.node_of(parts_.rank);
    gpu_place_.process = parts_.process;
    clock_ = options_.gpus->clock();
    engine_.time_streams(*clock_);
  }
  if (wants_thread(options, parts)) thread_.emplace(engine_);
}

Communicator& HostWorld::group() {
  if (!group_) group_ = std::make_unique<Communicator>(open_group(options_.backend, false));
  return *group_;
}

Communicator HostWorld::open_group(BackendKind backend, bool blocking) {
  if (backend == BackendKind::Mpi) return Communicator(open_mpi_group(blocking));
  std::vector<int> members(static_cast<size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  const std::string key = "world" + (num_groups_ == 0 ? std::string() : std::to_string(num_groups_));
  ++num_groups_;
  auto group = std::make_unique<OwnGroup>(context_, key, std::move(members), rank());
  const bool on_host = backend == BackendKind::Host || (options_.gpus == nullptr && backend != BackendKind::Nccl);
  return Communicator(on_host ? std::move(group) : open_on_gpus(backend, std::move(group)));
}

std::unique_ptr<GroupBackend> HostWorld::open_on_gpus(BackendKind backend, std::unique_ptr<OwnGroup> group) {
  const bool nccl = backend == BackendKind::Nccl;
  if (nccl && options_.nccl == nullptr) {
    throw ConfigError("--comm nccl: needs ranks that compute on a GPU (allowed: own)");
  }
  if (options_.gpus == nullptr) return open_nccl_group(std::move(group));
  const GpuMode mode = nccl ? GpuMode::Nccl : options_.gpu_mode;
  if (!gpu_groups_) {
    gpu_groups_ = std::make_unique<GpuGroups>(
        GpuGroups::Parts{*options_.gpus, *parts_.meetings, options_.nccl.get(), local_rank(parts_)}, gpu_place_, *group,
        mode);
  }
  return gpu_groups_->open(std::move(group), mode);
}

/// On the GPU that is current: where the World does not know which ones there are.
std::unique_ptr<GroupBackend> HostWorld::open_nccl_group(std::unique_ptr<OwnGroup> group) {
  return std::make_unique<NcclGroup>(*options_.nccl, std::move(group), [this](std::unique_ptr<OwnGroup> part) {
    return open_nccl_group(std::move(part));
  });
}

std::shared_ptr<SharedRegion> HostWorld::share(size_t bytes) {
  const std::vector<int>& mates = parts_.hosts.ranks_of(parts_.hosts.node_of(rank()));
  if (mates.size() == 1) return SharedRegion::anonymous(bytes);
  return parts_.regions->open("shared" + std::to_string(num_shared_++), bytes, mates);
}

std::unique_ptr<GroupBackend> HostWorld::open_mpi_group(bool) {
  throw ConfigError("--comm mpi: needs ranks started by mpirun, these are " + parts_.kind + " (allowed: own)");
}

void raise_current(Failure& failure) {
  try {
    throw;
  } catch (const ConfigError& error) {
    failure.raise(error.what(), {}, Failure::Report::None);
  } catch (const std::exception& error) {
    failure.raise(error.what());
  } catch (...) {
    failure.raise("an exception of unknown type");
  }
}

void run_body(const std::function<void(World&)>& body, World& world, Failure& failure) {
  const auto end_child = [&](int exit_code) {
    if (!failure.recorder().in_own_process()) std::_Exit(exit_code);
  };
  try {
    body(world);
  } catch (...) {
    end_child(EXIT_FAILURE);
    raise_current(failure);
    throw;
  }
  end_child(EXIT_SUCCESS);
}

}  // namespace sixfold::comm
