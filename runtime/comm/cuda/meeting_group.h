// MeetingGroup: a group of rank threads that share one GPU. Its collectives run our own schedules there, a grid for all
// ranks each; what is in host memory (barriers, counts of an uneven all-to-all) goes over the host group beside it.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/comm/cuda/meeting.h"
#include "runtime/comm/host/own_group.h"

namespace sixfold::comm {

class MeetingWork;

class MeetingGroup final : public GroupBackend, public Progressable {
 public:
  /// `host`: the same ranks on host memory. `meeting` outlives this, and is shared by the members. `open`: for splits.
  MeetingGroup(Meeting& meeting, std::unique_ptr<OwnGroup> host, OpenGroup open);
  /// Waits for what is under way, unless the World has failed.
  ~MeetingGroup() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int world_rank(int r) const override { return host_->world_rank(r); }
  const Topology& topology() const override { return host_->topology(); }
  Algorithm algorithm_for(const Collective& collective) const override { return plans_.choose(collective); }
  std::shared_ptr<WorkState> start(const Collective& collective) override;
  std::shared_ptr<WorkState> transfer(std::span<const P2p> transfers) override;
  std::unique_ptr<GroupBackend> split(int color, int key) override;

  bool poll() override;
  std::shared_ptr<WorkState> outstanding() override;
  bool wakes() const override { return false; }  // the device rings nobody's bell
  void abandon() noexcept override { meeting_.device().abort(); }

  Meeting& meeting() const { return meeting_; }
  ProgressEngine& engine() const { return host_->context().engine; }

 private:
  struct Lane {
    uint64_t next_sequence = 0;
  };

  std::shared_ptr<StreamMark> mark(void* stream) const {
    return stream == nullptr ? nullptr : meeting_.device().mark(stream);
  }
  template <typename Arrive>
  std::shared_ptr<Rendezvous> arrive(const std::string& what, const Arrive& arrive);

  Meeting& meeting_;
  std::unique_ptr<OwnGroup> host_;
  WatchedGroup watched_;
  OpenGroup open_;
  GroupPlans plans_;
  uint64_t next_sequence_ = 0;
  std::map<std::tuple<int, int, int>, Lane> lanes_;  // by sender, receiver, lane
  std::vector<std::shared_ptr<MeetingWork>> under_way_;
};

}  // namespace sixfold::comm
