// World: where ranks come from, seen by one rank.
//
//   run_world(options, body)   calls body(world) once per rank: in num_ranks threads of this process, or in this
//   process
//                              as one rank of an mpirun
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/cuda/mode.h"
#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/observe/comm_table.h"
#include "runtime/comm/schedule/profile.h"

namespace sixfold::comm {

/// Own: our collectives, on the World's device. Host: the same on host memory, whatever the device. Mpi: MPI's, on host
/// memory. Nccl: NCCL's, on GPUs.
enum class BackendKind : uint8_t { Own, Mpi, Host, Nccl };

class CommLog;      // observe/comm_log.h
class GpuProvider;  // cuda/gpu_provider.h
struct NcclSetup;   // nccl/stream_queue.h

/// Whether a thread of each rank drives its operations while the rank computes. Auto: where this host has twice as many
/// usable cores as its ranks compute with.
enum class ProgressThreadUse : uint8_t { Auto, On, Off };
/// "auto", "on", "off". Throws ConfigError.
ProgressThreadUse parse_progress_thread(const std::string& name);

/// Shape of the links, in shared memory and between hosts. Tests make them small, so that few elements reach every
/// path.
struct LinkOptions {
  int num_slots = 4;              // per sender, receiver and channel; >= 2
  size_t slot_bytes = 64 * 1024;  // a multiple of 64
  // Where peers reach each other's buffers, operations (operation_bytes) of at least so many bytes write their results
  // there. Smaller ones are quicker through slots, which both cores have at hand.
  size_t min_in_place_bytes = 32 * 1024;
  // Of those, operations of at least so many bytes, and reductions in place of all sizes, let peers read what they
  // send where it lies. Lines that a peer has read cost their owner a trip to the peer's cache (8 ns each between
  // distant cores) when it next writes to them, more than a slot costs, unless they are too many for the caches, or the
  // peer writes the result to them.
  size_t min_lend_bytes = 32 << 20;
};

struct WorldOptions {
  int num_ranks = 0;  // >= 1: that many threads of this process; 0: as the launcher says, else one rank
  BackendKind backend = BackendKind::Own;
  Algorithm algorithm = Algorithm::Auto;  // for operations whose Options say Auto
  bool deterministic = false;             // direct everywhere: an explicit ring or tree is a ConfigError
  double timeout_s = 120;                 // a wait in which nothing moves for so long is a CommError
  LinkOptions links;
  std::string topology;          // "NODESxRANKS": ranks are declared to be on so many nodes; empty: as they are found
  bool force_mpi_links = false;  // MPI carries what goes between declared nodes, on one host too; processes only
  std::string profile;           // name or file: algorithms are chosen by what this hardware would take for them
  std::string tune_file;         // ... by these measured rows, where there are any for a group
  bool debug = false;            // rank 0 of each group says what it found and what it will choose, and why
  // Where a World that fails writes flight-recorder.json, the last operations of all ranks of the host; made where it
  // is missing. Empty: nowhere.
  std::string flight_recorder_dir;
  /// The GPUs that collectives of the World's groups run on; nullptr: they run on the host. Threads share it.
  std::shared_ptr<GpuProvider> gpus;
  GpuMode gpu_mode = GpuMode::Auto;  // how, where there are GPUs; each group chooses for its ranks (choose_mode)
  /// What BackendKind::Nccl runs on, and Auto where our own collectives do not reach; nullptr: neither may.
  std::shared_ptr<const NcclSetup> nccl;
  // With such a thread, and on GPUs, a buffer of an operation under way must stay until it is done even where an
  // exception that is no CommError leaves its scope: the thread learns of it when the World's body has ended, not
  // before.
  ProgressThreadUse progress_thread = ProgressThreadUse::Auto;
  int num_compute_threads = 1;  // of each rank; what Auto reckons with
  bool time_waits = false;      // the table says how long operations waited for ranks that came late
  size_t comm_log_bytes = 0;  // each rank records every operation in about so much memory (World::comm_log()); 0: none
  std::string emulate_links;  // "intra=GB/s,inter=GB/s,scale=X": links are paced to these rates; empty: they are not
};

/// How waits of one rank have slept, since its World started.
struct WaitCounts {
  uint64_t sleeps = 0;
  uint64_t woken = 0;  // of those, sleeps that another rank has ended (doorbell.h); the rest ended by themselves
};

/// How the collectives of a World run on GPUs.
struct GpuUse {
  GpuMode mode = GpuMode::Staged;  // of the group of all ranks
  int num_sharing = 1;             // ranks that have the GPU of rank 0
};

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The group of all ranks, on the World's backend. Lives as long as the World.
  virtual Communicator& group() = 0;
  /// Collective: another group of all ranks, on a backend of choice, so that backends can be compared in one run.
  /// blocking (mpi only): each call returns when it is done, as MPI_Allreduce does. Throws ConfigError for mpi among
  /// threads. Destroyed before the World.
  virtual Communicator open_group(BackendKind backend, bool blocking) = 0;
  /// Which ranks share a node: as found, or as WorldOptions declares.
  virtual const Topology& topology() const = 0;
  /// Which ranks share memory, as the nodes of a topology: those of one host, or fewer where
  /// WorldOptions::force_mpi_links has it so.
  virtual const Topology& hosts() const = 0;
  /// More ranks than cores, on any of the hosts: ranks take turns, and waits yield. The same on all ranks.
  virtual bool oversubscribed() const = 0;
  /// Collective: a new region of `bytes` bytes (> 0), zeroed, that the ranks of one of hosts() share. To be held until
  /// all of them have it: to some later operation of the group. Throws CommError.
  virtual std::shared_ptr<SharedRegion> share(size_t bytes) = 0;
  /// This rank's memory. Blocks of parameters, gradients and communication lie where all ranks of the host reach them:
  /// large operations read and write such buffers in place (see LinkOptions).
  virtual Memory& memory() = 0;
  virtual CommTable& comm_table() = 0;
  /// What this rank records of every operation; nullptr without WorldOptions::comm_log_bytes.
  virtual CommLog* comm_log() = 0;
  /// Drives every outstanding operation of this rank once. Compute loops call it between pieces of work, so that
  /// communication goes on meanwhile. With a progress thread it only throws what has failed. Throws as Work::wait().
  virtual void progress() = 0;
  /// Adds to the table's exposed times what streams that follow operations (Options::stream) have stood still for them,
  /// as far as they have come. By the rank's own thread.
  virtual void count_stalls() = 0;
  /// Whether a thread of this rank drives its operations while it computes.
  virtual bool has_progress_thread() const = 0;
  /// Any thread may ask.
  virtual WaitCounts wait_counts() const = 0;
  /// nullptr where collectives run on the host, and before the first group is opened.
  virtual const GpuUse* gpu_use() const = 0;
  /// "threads" or "mpi": for log lines.
  virtual std::string kind() const = 0;

  /// For long work of this rank that the others wait for, such as a save: between the two, no deadline of the other
  /// ranks of this host runs out, and reports say where this rank is. A rank that ends meanwhile is noticed as ever.
  /// They nest. Better through Section, which ends with its scope.
  virtual void begin_section(const std::string& name) = 0;
  virtual void end_section() = 0;
  class Section;
};

class World::Section {
 public:
  Section(World& world, const std::string& name) : world_(world) { world_.begin_section(name); }
  ~Section() { world_.end_section(); }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  World& world_;
};

/// Number of ranks that run_world would start, known before anything is started or allocated.
int planned_world_size(const WorldOptions& options);
/// This process's rank under a launcher, 0 otherwise: who prints a configuration error.
int planned_world_rank(const WorldOptions& options);

/// The links that WorldOptions::emulate_links asks for (not empty): the rates of the text, the rest of `host`. Throws
/// ConfigError.
Profile emulated_profile(const WorldOptions& options);

/// Throws ConfigError for what run_world would refuse, without starting anything.
void check_world_options(const WorldOptions& options);

/// Runs `body` on every rank and returns when all are done. Options are checked first (ConfigError).
///
/// When a rank fails, by an exception, a mismatch, a deadline, or because it finds that another rank has left or that
/// its process has ended, the waits of all ranks throw CommError, and one rank of the host logs what each was doing.
///
/// Threads: when one rank throws, the others' waits throw CommError; the first exception is rethrown here.
/// MPI: an exception of this rank is logged, the other ranks are told, and after a grace period (so that they can say
/// what they were doing) the job is ended with exit code 1. While the World lives, SIGTERM makes the same report before
/// it ends the process.
void run_world(const WorldOptions& options, const std::function<void(World&)>& body);

}  // namespace sixfold::comm
