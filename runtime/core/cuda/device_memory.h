// Memory of a GPU and pinned memory of the host, for a Memory to account by category.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>

#include "runtime/core/arena.h"
#include "runtime/core/memory.h"

namespace sixfold::cuda {

/// One cudaMalloc of its own. Freeing waits for the device: not while a peer waits in a kernel.
class DeviceBlock {
 public:
  /// On the device that is current; content unspecified. bytes > 0. Throws CommError.
  explicit DeviceBlock(size_t bytes);
  ~DeviceBlock();
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Zeroes the first `bytes` bytes, in order with `stream`.
  void zero(size_t bytes, cudaStream_t stream) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

/// One cudaMalloc, made at the start and handed out in pieces: neither allocating nor giving back may touch the driver
/// while a peer waits in a kernel, and one block is one handle to share with other processes.
class DeviceArena final : public Allocator {
 public:
  /// On the device that is current. Throws CommError that says how much is free.
  explicit DeviceArena(size_t bytes);

  /// Throws CommError with the bytes asked for, and those that there are.
  void* allocate(size_t bytes, Category category) override;
  void deallocate(void* block, size_t bytes) noexcept override;
  Device device() const override { return {DeviceType::Cuda, device_}; }

  std::byte* data() const { return block_.data(); }
  size_t bytes() const { return block_.bytes(); }

 private:
  int device_;
  DeviceBlock block_;
  std::mutex mutex_;
  Arena arena_;
};

/// Pages of the host that stay where they are and that kernels reach at the same address.
class PinnedMemory {
 public:
  /// Zeroed. Throws CommError.
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

}  // namespace sixfold::cuda
