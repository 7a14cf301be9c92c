// StreamQueue: the stream of one rank that NCCL's operations are issued to, as far as a group needs to know it.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace sixfold::comm {

/// A point of the queue.
class QueueMark {
 public:
  virtual ~QueueMark() = default;
  /// Whether all before it is done. Never blocks. Throws CommError when something has failed.
  virtual bool done() = 0;
  /// What is issued to `stream` (a cudaStream_t) from now on follows it.
  virtual void order_before(void* stream) = 0;
};

class StreamQueue {
 public:
  virtual ~StreamQueue() = default;
  /// A cudaStream_t.
  virtual void* handle() = 0;
  /// What is issued here from now on follows what was issued to `stream`.
  virtual void wait_for(void* stream) = 0;
  virtual std::unique_ptr<QueueMark> mark() = 0;
};

/// What a World needs to run NCCL.
struct NcclSetup {
  std::string library = "libnccl.so.2";
  /// On the GPU that is current for the calling thread, a rank's own (GpuProvider::place).
  std::function<std::unique_ptr<StreamQueue>()> open_queue;
};

/// Throws ConfigError where this build has no CUDA, or the machine no GPU.
std::shared_ptr<const NcclSetup> make_cuda_nccl_setup();

}  // namespace sixfold::comm
