// GridDevice: what carries out operations of ranks that are threads of one process and share one GPU.
//
// All of an operation is known when it starts, since every rank has deposited its part (meeting.h): so one grid runs
// the blocks of all ranks, and nothing ever waits for work that is not scheduled. Implementations: a GPU
// (device/cuda_grid.cpp) and, in tests, host threads.
#pragma once

#include <memory>
#include <vector>

#include "kernels/reduce.h"
#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// A point of a rank's stream: what was issued before it.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
};

/// One operation that was launched.
class GridWork {
 public:
  virtual ~GridWork() = default;
  /// Never blocks. Throws CommError when it has failed on the device.
  virtual bool done() = 0;
  /// What is issued to `stream` from now on follows the operation.
  virtual void order_before(void* stream) = 0;
  /// What `rank` of the group sends to others; of a message, rank 0 is the sender.
  virtual uint64_t sent_bytes(int rank) const = 0;
};

/// A collective as all its ranks have deposited it. Vectors are by rank.
struct GridCollective {
  Call call;  // rank, pass and in_place fields are not set
  Algorithm algorithm = Algorithm::Auto;
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::Sum;
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<bool> in_place;
  std::vector<std::shared_ptr<StreamMark>> after;  // nullptr: nothing to wait for
};

/// A message: both sides have come.
struct GridCopy {
  const void* from = nullptr;
  void* to = nullptr;
  size_t bytes = 0;
  std::vector<std::shared_ptr<StreamMark>> after;
};

class GridDevice {
 public:
  virtual ~GridDevice() = default;
  /// Of a cudaStream_t, which is not nullptr. By the rank's own thread.
  virtual std::shared_ptr<StreamMark> mark(void* stream) = 0;
  /// Operations run in the order of launch; one thread at a time. Return before the operation is done. Throw CommError,
  /// or ConfigError where the device cannot hold so many ranks at once.
  virtual std::shared_ptr<GridWork> launch(const GridCollective& collective) = 0;
  virtual std::shared_ptr<GridWork> launch(const GridCopy& copy) = 0;
  /// The World has failed: blocks that wait give up. Returns when all have ended, or after a second. By any thread.
  virtual void abort() noexcept = 0;
};

/// A GPU of this process, of which CUDA knows the index. `timeout_s`: of a wait inside a kernel. Throws CommError where
/// the GPU refuses. Only in builds with CUDA.
std::unique_ptr<GridDevice> make_cuda_grid(int device_index, double timeout_s);

}  // namespace sixfold::comm
