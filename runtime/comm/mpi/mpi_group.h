// MpiGroup: the same interface on MPI's own collectives, host memory. The yardstick that our own are measured against.
#pragma once

#include <mpi.h>

#include <map>
#include <tuple>
#include <vector>

#include "runtime/comm/group_backend.h"
#include "runtime/comm/host/progress.h"

namespace sixfold::comm {

class MpiWork;

class MpiGroup final : public GroupBackend, public Progressable {
 public:
  /// Takes `communicator` over and frees it. `key` names the group in reports. `world` is the topology of all ranks,
  /// and outlives this. blocking: collectives return when they are done.
  MpiGroup(ProgressEngine& engine, std::string key, MPI_Comm communicator, const Topology& world, bool blocking);
  /// Completes what is under way, unless the World has failed.
  ~MpiGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const Topology& topology() const override { return topology_; }
  int world_rank(int r) const override { return world_ranks_.at(static_cast<size_t>(r)); }
  std::shared_ptr<WorkState> start(const Collective& collective) override;
  std::shared_ptr<WorkState> transfer(std::span<const P2p> transfers) override;
  std::unique_ptr<GroupBackend> split(int color, int key) override;

  bool poll() override;
  std::shared_ptr<WorkState> outstanding() override;
  bool wakes() const override { return false; }  // MPI does not say when something has come

 private:
  WatchedOperation issue(const P2p& transfer, double now_s);

  ProgressEngine& engine_;
  std::string key_;
  WatchedGroup watched_;
  uint64_t next_sequence_ = 0;                                        // of collectives
  std::map<std::tuple<P2p::Kind, int, int>, uint64_t> next_message_;  // by kind, peer, lane
  int num_splits_ = 0;
  MPI_Comm communicator_;
  const Topology& world_;
  bool blocking_;
  int rank_ = 0, size_ = 1;
  std::vector<int> world_ranks_;
  Topology topology_ = Topology::one_node(1);
  std::vector<std::shared_ptr<MpiWork>> under_way_;
};

}  // namespace sixfold::comm
