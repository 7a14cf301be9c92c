// StagingDevice: how one group of a rank moves buffers of its GPU to and from the host. Everything is asynchronous and
// polled.
//
// Implementations: a GPU (device/cuda_staging.cpp) and, in tests, a thread of the host that is late.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace sixfold::comm {

/// A point of a stream of the GPU: what was issued before it.
class StagingEvent {
 public:
  virtual ~StagingEvent() = default;
  /// Whether all of that is done. Never blocks. Throws CommError when something has failed.
  virtual bool done() = 0;
  /// What is issued to `stream` (a cudaStream_t) from now on follows it.
  virtual void order_before(void* stream) = 0;
};

struct StagingCopy {
  void* device = nullptr;
  void* host = nullptr;  // in pinned memory
  size_t bytes = 0;      // > 0
};

/// How a group cuts what it moves (staged_group.h). The same on all ranks.
struct StagingShape {
  // Of one piece, on each side. On PCIe at 25 to 50 GB/s a piece of 1 MiB takes 20 to 40 us, a few times what issuing
  // it and seeing it done takes; and the copies that nothing hides, of the first piece and the last, stay short beside
  // the collective between them.
  size_t piece_bytes = 1 << 20;
  int num_slots = 3;  // pieces at a time: one is copied to the host, one travels, one is copied back
};

/// Any thread of the rank, one at a time. All throw CommError.
class StagingDevice {
 public:
  virtual ~StagingDevice() = default;
  virtual StagingShape shape() const { return {}; }
  /// Of a cudaStream_t, which is not nullptr.
  virtual std::unique_ptr<StagingEvent> mark(void* stream) = 0;
  /// Copies in one direction are done in the order of issue; the event is that of the last one. At least one.
  virtual std::unique_ptr<StagingEvent> copy_to_host(std::span<const StagingCopy> copies) = 0;
  virtual std::unique_ptr<StagingEvent> copy_to_device(std::span<const StagingCopy> copies) = 0;
  /// Makes memory of the host such that the GPU copies from and to it asynchronously, until unpin(), which waits for
  /// the copies that are under way; the memory goes away after that. Takes long, so once for each ring of buffers.
  /// `data`: where a page begins.
  virtual void pin(void* data, size_t bytes) = 0;
  virtual void unpin(void* data) noexcept = 0;
  /// Returns when all copies are done, or have failed. For the end, and for failures: it blocks, as nothing else here.
  virtual void drain() noexcept = 0;
};

/// On a GPU of this process, of which CUDA knows the index. Throws CommError. Only in builds with CUDA.
std::unique_ptr<StagingDevice> make_cuda_staging(int device_index);

}  // namespace sixfold::comm
