// NcclGroup: the same interface on NCCL, for GPUs that ours does not reach: of other hosts, or without peer access.
//
// Collectives have one NCCL communicator and stream, messages another for each lane; what is in host memory (barriers,
// counts of an uneven all-to-all, the unique ids) goes over the host group beside it. Messages of one lane start in the
// order of issue over all peers, so those that must go together are one batch. Algorithms are NCCL's own.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "runtime/comm/host/own_group.h"
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/stream_queue.h"

namespace sixfold::comm {

class NcclWork;

class NcclGroup final : public GroupBackend, public Progressable {
 public:
  /// Collective: all members of `host`. `setup` outlives this. `open`: for splits. Throws CommError, and ConfigError
  /// without the library.
  NcclGroup(const NcclSetup& setup, std::unique_ptr<OwnGroup> host, OpenGroup open);
  /// Waits for what is under way, unless the World has failed: then NCCL's communicators are aborted.
  ~NcclGroup() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int world_rank(int r) const override { return host_->world_rank(r); }
  const Topology& topology() const override { return host_->topology(); }
  std::shared_ptr<WorkState> start(const Collective& collective) override;
  std::shared_ptr<WorkState> transfer(std::span<const P2p> transfers) override;
  std::unique_ptr<GroupBackend> split(int color, int key) override;

  bool poll() override;
  std::shared_ptr<WorkState> outstanding() override;
  bool wakes() const override { return false; }  // the device rings nobody's bell
  void abandon() noexcept override;

 private:
  struct Line {  // a communicator and its stream
    NcclComm comm = nullptr;
    std::unique_ptr<StreamQueue> queue;
  };

  ProgressEngine& engine() const { return host_->context().engine; }
  void open_lines();
  Line open_line();
  void issue(const Collective& c, Line& line) const;
  WatchedOperation issue(const P2p& transfer, double now_s);
  void issue_blocks(const Collective& c, Line& line) const;
  std::shared_ptr<NcclWork> finish(std::shared_ptr<NcclWork> work, Line& line);
  void check_async_errors();

  const NcclSetup& setup_;
  std::shared_ptr<const NcclApi> api_;
  std::unique_ptr<OwnGroup> host_;
  WatchedGroup watched_;
  OpenGroup open_;
  std::vector<Line> lines_;                                           // collectives, then the lanes
  uint64_t next_sequence_ = 0;                                        // of collectives
  std::map<std::tuple<P2p::Kind, int, int>, uint64_t> next_message_;  // by kind, peer, lane
  std::vector<std::shared_ptr<NcclWork>> under_way_;
};

}  // namespace sixfold::comm
