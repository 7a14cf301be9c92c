// GpuProvider: what a World whose ranks compute on GPUs knows of them. CUDA is behind it; tests put host threads there.
//
// A rank has the GPU with the number `local_rank` modulo the number of GPUs, local_rank being its place among the ranks
// of its host: threads and processes alike.
#pragma once

#include <memory>

#include "runtime/comm/cuda/grid_device.h"
#include "runtime/comm/cuda/mode.h"
#include "runtime/comm/cuda/peer_device.h"
#include "runtime/comm/cuda/staging_device.h"
#include "runtime/comm/observe/stream_clock.h"

namespace sixfold::comm {

/// Shared by the ranks of a process, which may call it at once. Outlives their Worlds. All throw CommError where the
/// GPU refuses.
class GpuProvider {
 public:
  virtual ~GpuProvider() = default;
  /// Called by the rank's own thread, before all others: makes its GPU current for the thread. Of what it returns, gpu
  /// and peers are set.
  virtual GpuPlace place(int local_rank) = 0;
  /// Of streams of the rank's GPU.
  virtual std::unique_ptr<StreamClock> clock() = 0;
  /// For collectives of ranks of this process that share a GPU: one object for all of them. It lives as long as this.
  virtual GridDevice& grid(int local_rank) = 0;
  /// For groups of ranks that reach one another's memory: one object a rank, for all of its groups. Lives as long as
  /// this.
  virtual PeerDevice& peer(int local_rank) = 0;
  /// For one group of the rank, which owns it.
  virtual std::unique_ptr<StagingDevice> staging(int local_rank) = 0;
};

/// The GPUs of this machine. `timeout_s`: of a wait inside a kernel. Throws ConfigError where this build has no CUDA or
/// the machine no GPU.
std::shared_ptr<GpuProvider> make_cuda_provider(double timeout_s);

}  // namespace sixfold::comm
