// HostWorld: one rank of a World, whatever started it. Threads and processes differ only in how memory is shared.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/comm/cuda/gpu_groups.h"
#include "runtime/comm/host/own_group.h"
#include "runtime/comm/host/progress_thread.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

/// What differs between worlds. References outlive the HostWorld.
struct HostWorldParts {
  int rank = 0;
  int size = 1;
  int process = 0;   // equal for ranks that are threads of one
  std::string kind;  // "threads", "mpi"
  Failure* failure = nullptr;
  RegionProvider* regions = nullptr;
  Doorbells* doorbells = nullptr;
  bool oversubscribed = false;  // more ranks than cores; on any of the hosts, so that all ranks have the same
  int num_on_machine = 1;       // ranks
  bool may_thread = true;       // whether another thread of the rank may do what its own does (one at a time)
  Topology topology;            // as found; WorldOptions may declare another
  Topology hosts;               // ranks of one node share memory, all others have links by `carriers`
  CarrierProvider* carriers = nullptr;
  Meetings* meetings = nullptr;  // of the ranks of this process
};

class HostWorld : public World {
 public:
  HostWorld(const WorldOptions& options, const HostWorldParts& parts);

  int rank() const override { return parts_.rank; }
  int size() const override { return parts_.size; }
  Communicator& group() override;
  Communicator open_group(BackendKind backend, bool blocking) override;
  const Topology& topology() const override { return topology_; }
  const Topology& hosts() const override { return parts_.hosts; }
  bool oversubscribed() const override { return parts_.oversubscribed; }
  std::shared_ptr<SharedRegion> share(size_t bytes) override;
  Memory& memory() override { return memory_; }
  CommTable& comm_table() override { return table_; }
  CommLog* comm_log() override { return log_ ? &*log_ : nullptr; }
  void progress() override { engine_.progress(); }
  void count_stalls() override { engine_.count_stalls(); }
  bool has_progress_thread() const override { return thread_.has_value(); }
  const GpuUse* gpu_use() const override { return gpu_groups_ ? &gpu_groups_->use() : nullptr; }
  std::string kind() const override { return parts_.kind; }
  void begin_section(const std::string& name) override { engine_.recorder().begin_section(name, seconds_now()); }
  void end_section() override { engine_.recorder().end_section(); }
  WaitCounts wait_counts() const override { return engine_.wait_counts(); }

 protected:
  ProgressEngine& engine() { return engine_; }
  virtual std::unique_ptr<GroupBackend> open_mpi_group(bool blocking);

 private:
  std::unique_ptr<GroupBackend> open_on_gpus(BackendKind backend, std::unique_ptr<OwnGroup> group);
  std::unique_ptr<GroupBackend> open_nccl_group(std::unique_ptr<OwnGroup> group);

  WorldOptions options_;
  HostWorldParts parts_;
  Topology topology_;
  std::optional<Pacer> pacer_;
  PeerMemory peers_;
  Memory memory_;
  RankLock lock_;
  CommTable table_{lock_};
  std::optional<CommLog> log_;
  OperationWatch watch_;
  AlgorithmChoice choice_;
  ProgressEngine engine_;
  HostContext context_;
  int num_groups_ = 0;
  int num_shared_ = 0;
  GpuPlace gpu_place_;                     // where there are GPUs, as the next
  std::unique_ptr<StreamClock> clock_;     // goes after the engine's last look
  std::unique_ptr<GpuGroups> gpu_groups_;  // made with the first group on them
  std::unique_ptr<Communicator> group_;    // goes before what it uses
  std::optional<ProgressThread> thread_;   // goes first: from then on this rank's own thread is alone
};

/// Which ranks share memory, when `found` says which are on one host: those, or less, where WorldOptions forces links
/// of another kind between declared nodes.
Topology memory_hosts(const WorldOptions& options, const Topology& found);

/// In a catch clause: tells the other ranks what the exception says. A ConfigError, which every rank is likely to
/// throw, makes no report.
void raise_current(Failure& failure);
/// Calls `body`; an exception reaches the other ranks before the World closes its groups, which would wait for them. A
/// process that the body has forked, and that comes out of it, ends here: it is no rank, and must not touch what the
/// ranks share.
void run_body(const std::function<void(World&)>& body, World& world, Failure& failure);

/// Ranks as threads of this process (host/thread_world.cpp).
void run_threads(const WorldOptions& options, const std::function<void(World&)>& body);
/// This process as one rank of an MPI job (mpi/mpi_world.cpp).
void run_mpi(const WorldOptions& options, const std::function<void(World&)>& body);

}  // namespace sixfold::comm
