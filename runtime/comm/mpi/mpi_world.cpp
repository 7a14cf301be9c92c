// MpiWorld: ranks are processes that mpirun has started. MPI is used to find each other, and then for messages between
// hosts (mpi_links.h); its collectives only where asked for (--comm mpi). Within a host our own run over shared memory.
#include <mpi.h>
#include <sys/random.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "runtime/comm/host/host_world.h"
#include "runtime/comm/mpi/hosts.h"
#include "runtime/comm/mpi/mpi_group.h"
#include "runtime/comm/mpi/mpi_links.h"
#include "runtime/comm/mpi/mpi_types.h"
#include "runtime/comm/mpi/process_regions.h"
#include "runtime/comm/mpi/termination_watch.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

namespace {

// How long a failed rank waits before it ends the job, so that the others can say what they were doing: a launcher
// gives them no time once one process is gone.
constexpr auto kGrace = std::chrono::milliseconds(700);

class MpiWorld final : public HostWorld {
 public:
  using HostWorld::HostWorld;

 protected:
  std::unique_ptr<GroupBackend> open_mpi_group(bool blocking) override {
    MPI_Comm copy = MPI_COMM_NULL;
    {
      const std::lock_guard guard(engine().lock());
      check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
    }
    const std::string key = "mpi" + (num_groups_ == 0 ? std::string() : std::to_string(num_groups_));
    ++num_groups_;
    return std::make_unique<MpiGroup>(engine(), key, copy, topology(), blocking);
  }

 private:
  int num_groups_ = 0;
};

uint64_t agree_on_job_word() {
  uint64_t job = 0;
  if (getrandom(&job, sizeof(job), 0) != sizeof(job)) throw CommError("getrandom failed");
  check_mpi(MPI_Bcast(&job, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return job;
}

/// In a catch clause. `failure`: nullptr as long as there is none.
[[noreturn]] void end_job(Failure* failure, int rank, const std::string& reason) {
  const auto end = std::chrono::steady_clock::now() + kGrace;
  if (failure != nullptr) raise_current(*failure);
  // The same complaint of every rank, such as a wrong option, is said once.
  const bool said = failure != nullptr && failure->abort().is_set() &&
                    (failure->has_reported() || (failure->abort().rank != rank && reason == failure->abort().text));
  if (!said) log_error(reason);
  if (failure != nullptr) failure->announce();
  std::this_thread::sleep_until(end);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();  // MPI_Abort does not return
}

/// On the watch's thread, while the rank's own may be anywhere.
void on_termination(Failure& failure) {
  set_log_rank(failure.recorder().rank());
  std::string reason = "told to end (SIGTERM)";
  for (const int rank : failure.recorder().gone())
    reason += ", rank " + std::to_string(rank) + " is gone (its process has ended)";
  failure.raise(reason);
}

}  // namespace

void run_mpi(const WorldOptions& options, const std::function<void(World&)>& body) {
  int provided = 0, rank = 0, size = 1;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  set_log_rank(rank);
  // These outlive the catch below, which tells the others.
  std::shared_ptr<SharedRegion> abort_region;
  std::unique_ptr<MpiLinks> links;
  std::unique_ptr<FlightRecorder> recorder;
  std::unique_ptr<Doorbells> doorbells;
  std::unique_ptr<Failure> failure;
  std::unique_ptr<TerminationWatch> watch;
  try {
    const Hosts found = find_hosts();
    const Topology hosts = memory_hosts(options, found.topology);
    ProcessRegions regions(agree_on_job_word(), rank, options.timeout_s);
    check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");  // every socket is bound before the first message
    const std::vector<int>& mates = hosts.ranks_of(hosts.node_of(rank));
    abort_region = regions.open("abort", sizeof(AbortState), mates);
    auto* abort = reinterpret_cast<AbortState*>(abort_region->data());
    recorder = std::make_unique<FlightRecorder>(
        regions.open("flight", FlightRecorder::region_bytes(mates.size()), mates), rank, mates);
    doorbells = std::make_unique<Doorbells>(regions.open("doorbells", Doorbells::region_bytes(mates.size()), mates),
                                            rank, mates);
    if (hosts.spans_nodes()) links = std::make_unique<MpiLinks>(hosts, *abort);
    failure = std::make_unique<Failure>(*abort, links.get(), *recorder, *doorbells, options.flight_recorder_dir);
    regions.set_failure(*failure);
    watch = std::make_unique<TerminationWatch>([&] { on_termination(*failure); });
    if (found.topology.spans_nodes() && !options.emulate_links.empty()) {
      throw ConfigError("--emulate-links " + options.emulate_links + ": the ranks are on " +
                        std::to_string(found.topology.num_nodes()) +
                        " hosts, whose clocks differ (allowed: ranks on one host)");
    }
    const bool oversubscribed = static_cast<unsigned>(found.num_on_machine) > std::thread::hardware_concurrency();
    // Tells profilers (MPI's own switch for them) that start-up is over and the program's own communication begins.
    MPI_Pcontrol(1);
    Meetings meetings;
    {
      MpiWorld world(options, {rank, size, rank, "mpi", failure.get(), &regions, doorbells.get(), oversubscribed,
                               found.num_on_machine, provided >= MPI_THREAD_SERIALIZED, found.topology, hosts,
                               links.get(), &meetings});
      run_body(body, world, *failure);
    }
    recorder->leave(seconds_now());
    MPI_Pcontrol(0);
    watch.reset();
    links.reset();
    MPI_Finalize();
  } catch (const std::exception& error) {
    end_job(failure.get(), rank, error.what());
  }
}

}  // namespace sixfold::comm
