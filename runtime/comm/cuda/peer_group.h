// PeerGroup: a group of ranks on one host whose GPUs reach one another's memory. Every rank launches its own part; our
// schedules run over links in the arenas (interpreter.h), small all-reduces with the flag in the data (low_latency.h).
//
// Kernels wait for those of other ranks, where each rank has a GPU of its own; where ranks share one, the host waits,
// and kernels move one slice each (host_stepper.h). What is in host memory goes over the host group beside it.
//
// Kernels of one group that wait may stand in the way of another group's: ranks issue the collectives of groups that
// share ranks in one order, as NCCL asks for.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/cuda/peer_messages.h"
#include "runtime/comm/host/own_group.h"

namespace sixfold::comm {

class PeerGroup final : public GroupBackend, public Progressable {
 public:
  /// Collective: the members of `host`, all on one host, with the same `runner`. `device`, this rank's, outlives it.
  /// `open`: for splits. Throws CommError.
  PeerGroup(PeerDevice& device, std::unique_ptr<OwnGroup> host, PeerRunner runner, OpenGroup open);
  /// Waits for what is under way, unless the World has failed.
  ~PeerGroup() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int world_rank(int r) const override { return host_->world_rank(r); }
  const Topology& topology() const override { return host_->topology(); }
  Algorithm algorithm_for(const Collective& collective) const override;
  std::shared_ptr<WorkState> start(const Collective& collective) override;
  std::shared_ptr<WorkState> transfer(std::span<const P2p> transfers) override;
  std::unique_ptr<GroupBackend> split(int color, int key) override { return open_(host_->split_own(color, key)); }

  bool poll() override;
  std::shared_ptr<WorkState> outstanding() override;
  bool wakes() const override { return false; }  // the device rings nobody's bell
  void abandon() noexcept override { device_.abort(); }

 private:
  ProgressEngine& engine() const { return host_->context().engine; }
  PeerSetting setting() { return {device_, runner_, rank(), size(), bases_, board_, topology()}; }
  Algorithm automatic(const Collective& c) const;
  bool is_low_latency(const Collective& c) const;
  PeerLine& collectives();
  PeerPart enter(const P2p& transfer, const std::shared_ptr<PeerWork>& work, double start);
  template <typename F>
  void for_each_line(const F& f) const {
    if (collectives_) f(*collectives_);
    messages_.for_each_line(f);
  }
  [[noreturn]] void fail(const PeerWork& work, const std::string& reason);
  void check_agreement(const PeerWork& work);

  PeerDevice& device_;
  std::unique_ptr<OwnGroup> host_;
  WatchedGroup watched_;
  PeerRunner runner_;
  OpenGroup open_;
  GroupPlans group_plans_;
  std::vector<std::byte*> bases_;  // by rank: where this one reaches the arenas
  PeerBoard board_;
  PeerPlanner planner_;
  PeerMessages messages_;
  std::unique_ptr<PeerLine> collectives_;
  uint64_t next_sequence_ = 0;
  uint32_t last_number_ = 0;  // of the operations of low latency
};

}  // namespace sixfold::comm
