// StagedGroup: a group of ranks on GPUs that do not reach one another. What a collective or a message takes goes
// through pinned buffers on the host, where the host group's own collectives and links (MPI between hosts) do the rest.
//
// Large buffers are cut into pieces, so that copies and the host's work go on side by side (staged_line.h). Everything
// moves by polling: whatever the rank waits for drives it, and so does its progress thread where it has one.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/comm/cuda/staged_line.h"
#include "runtime/comm/host/own_group.h"

namespace sixfold::comm {

class StagedWork;

class StagedGroup final : public GroupBackend, public Progressable {
 public:
  /// Collective: all members of `host`, the same ranks on host memory. `open`: for splits. Throws CommError.
  StagedGroup(std::unique_ptr<StagingDevice> device, std::unique_ptr<OwnGroup> host, OpenGroup open);
  /// Waits for what is under way, unless the World has failed.
  ~StagedGroup() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int world_rank(int r) const override { return host_->world_rank(r); }
  const Topology& topology() const override { return host_->topology(); }
  std::shared_ptr<WorkState> start(const Collective& collective) override;
  std::shared_ptr<WorkState> transfer(std::span<const P2p> transfers) override;
  std::unique_ptr<GroupBackend> split(int color, int key) override { return open_(host_->split_own(color, key)); }

  bool poll() override;
  std::shared_ptr<WorkState> outstanding() override;
  bool wakes() const override { return false; }  // the device rings nobody's bell
  void abandon() noexcept override { device_->drain(); }

 private:
  struct Lane {
    std::unique_ptr<StagedLine> line;  // with buffers that are pinned when the lane is first used
    uint64_t next_sequence = 0;
  };

  ProgressEngine& engine() const { return host_->context().engine; }
  std::unique_ptr<StagedLine> make_line(int num_slots, size_t slot_bytes);
  std::unique_ptr<StagingEvent> mark(void* stream) { return stream == nullptr ? nullptr : device_->mark(stream); }
  Lane& lane(const P2p& transfer);

  std::unique_ptr<StagingDevice> device_;
  std::unique_ptr<OwnGroup> host_;  // what is on the host in the first place: barriers, counts
  WatchedGroup watched_;
  std::unique_ptr<StagedLine> line_;                       // collectives
  std::map<std::tuple<P2p::Kind, int, int>, Lane> lanes_;  // by kind, peer, lane
  // Of pieces alone: ranks start them as their copies are done, which must not change the order of operations that they
  // issue to host_.
  std::unique_ptr<OwnGroup> parts_;
  OpenGroup open_;
  GroupPlans plans_;
  uint64_t next_sequence_ = 0;
  std::vector<std::shared_ptr<StagedWork>> under_way_;
};

}  // namespace sixfold::comm
