// Queue: where a rank's kernels are issued on a GPU, one after the other.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/kernel_table.h"

namespace sixfold::kernels {

/// Owned by whoever trains, one a rank; used by the rank's thread. What is issued runs in order, later.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual const KernelTable& kernels() const = 0;
  /// A cudaStream_t: what communication waits for, and makes wait (comm::Options::stream).
  virtual void* stream() const = 0;
  /// Copies in order with the kernels. to_device(): `host` may change when it returns. to_host(): returns when the
  /// bytes are there, and all that was issued before has run. Throw CommError.
  virtual void to_device(void* device, const void* host, size_t bytes) = 0;
  virtual void to_host(void* host, const void* device, size_t bytes) = 0;
};

/// A queue of that GPU, which becomes current for the calling thread. Before any communication: it allocates. Throws
/// ConfigError where this build has no CUDA or the machine no GPU, and CommError where the GPU refuses.
std::unique_ptr<Queue> make_cuda_queue(Device device);

}  // namespace sixfold::kernels
