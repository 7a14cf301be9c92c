// PeerDevice: the GPU of one rank whose memory other ranks reach, and whose memory they let it reach.
//
// All that a GPU may not be asked for while a peer waits in a kernel happens when it is made, or when a group is: the
// arena, its sharing, streams, the loading of kernels. Afterwards memory is handed out by bookkeeping alone
// (peer_arena.h), and everything is asynchronous and polled.
//
// Implementations: a GPU (device/cuda_peer.cpp) and, in tests, threads of the host.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "runtime/comm/cuda/grid_device.h"
#include "runtime/comm/cuda/interpreter.h"
#include "runtime/comm/cuda/low_latency.h"
#include "runtime/comm/cuda/peer_arena.h"

namespace sixfold::comm {

/// What one rank tells others so that they reach its arena: bytes that only the device understands.
using ArenaHandle = std::array<std::byte, 128>;

/// A launch of a rank's program; all that pointers name is memory of a device.
struct ProgramLaunch {
  const RankProgram* program = nullptr;  // its Input and Output are taken from here
  const void* input = nullptr;
  void* output = nullptr;
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::Sum;
  int num_blocks = 1;  // channels x splits
  int rank = 0;        // of the group, for who asks where a block is stuck
};

struct LowLatencyLaunch {
  LowLatencyArguments arguments;
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::Sum;
};

/// A stream of the device. Launches end in the order of issue.
class PeerQueue {
 public:
  virtual ~PeerQueue() = default;
  /// What is issued from now on follows the mark.
  virtual void wait_for(const StreamMark& mark) = 0;
  /// To the arena. `from` may go away when the call returns.
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  /// Kernels that wait for those of other ranks.
  virtual void launch(const ProgramLaunch& launch) = 0;
  virtual void launch(const LowLatencyLaunch& launch) = 0;
  /// One slice, of a program without splits; waits for nobody. `bytes`: as many as a slot holds.
  virtual void launch(const ProgramLaunch& launch, const SliceOrder& slice, size_t bytes) = 0;
  virtual std::shared_ptr<DeviceMark> mark() = 0;
};

/// How links are cut. The same on all ranks of a World.
struct PeerShape {
  int num_slots = 8;
  size_t slot_bytes = 64 * 1024;
  int max_splits = 16;                     // of a collective, a block each and channel
  int message_splits = 4;                  // of a message
  size_t bytes_per_split = 64 * 1024;      // fewer blocks where each would move less
  size_t stepped_slot_bytes = 512 * 1024;  // where each slice is a launch of its own, which takes microseconds
};

/// Any thread of the rank, one at a time. All throw CommError.
class PeerDevice {
 public:
  virtual ~PeerDevice() = default;
  virtual PeerShape shape() const { return {}; }
  virtual PeerArena& arena() = 0;
  virtual ArenaHandle arena_handle() const = 0;
  /// Where kernels of this rank reach the arena behind a handle. May touch the driver the first time for each.
  virtual std::byte* reach(const ArenaHandle& handle) = 0;
  /// Of a cudaStream_t, which is not nullptr.
  virtual std::shared_ptr<StreamMark> mark(void* stream) = 0;
  /// One of those made at the start; ConfigError where all are taken, or where the blocks of all that are open would
  /// not be resident at once. `max_blocks`: of one launch that waits for others; 0: none does.
  virtual std::unique_ptr<PeerQueue> open_queue(int max_blocks) = 0;
  /// The World has failed: kernels that wait give up. Returns when all have ended, or after a second. The device is
  /// unusable from then on.
  virtual void abort() noexcept = 0;
};

/// On a GPU of this process, of which CUDA knows the index. `timeout_s`: of a wait inside a kernel. Throws CommError.
/// Only in builds with CUDA.
std::unique_ptr<PeerDevice> make_cuda_peer(int device_index, double timeout_s);

}  // namespace sixfold::comm
