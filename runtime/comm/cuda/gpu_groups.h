// GpuGroups: opens the groups of one rank that run on GPUs, each in the mode that its ranks' places allow.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/cuda/gpu_provider.h"
#include "runtime/comm/cuda/meeting.h"
#include "runtime/comm/host/own_group.h"
#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/stream_queue.h"

namespace sixfold::comm {

class GpuGroups {
 public:
  /// All outlive the GpuGroups.
  struct Parts {
    GpuProvider& gpus;
    Meetings& meetings;
    const NcclSetup* nccl = nullptr;  // nullptr: not to be used
    int local_rank = 0;
  };
  /// Collective: the ranks of `world`, all there are, tell each other their places. Rank 0 logs how the group of all
  /// ranks will run, with `wanted` as in choose_mode(). Throws CommError, and ConfigError as choose_mode() does.
  GpuGroups(const Parts& parts, GpuPlace own, OwnGroup& world, GpuMode wanted);

  /// Collective: the members of `host`. Splits of the group are opened in the same way. Outlives its groups. Throws as
  /// the constructor.
  std::unique_ptr<GroupBackend> open(std::unique_ptr<OwnGroup> host, GpuMode wanted);
  /// Of the group of all ranks.
  const GpuUse& use() const { return use_; }

 private:
  Parts parts_;
  std::shared_ptr<const NcclApi> nccl_;  // which stays loaded
  std::vector<GpuPlace> places_;         // by rank of the World
  GpuUse use_;
};

}  // namespace sixfold::comm
