// A GPU without a GPU: the kernels of kernels/cuda, compiled for the CPU, on memory that only they may look at.
//
// Tensors of its memory say that they are on a GPU, so code that looks at them on the CPU is an error here as it is
// there; only kernels, and copies through the queue, reach them. What this cannot show is what nvcc, cuBLASLt and
// several threads at once make of the same sources: tests/gpu_check.sh does, on a GPU.
#pragma once

#include <cstring>
#include <memory>

#include "kernels/cuda/table.h"
#include "kernels/queue.h"

namespace sixfold::test {

class EmulatedQueue final : public kernels::Queue {
 public:
  const kernels::KernelTable& kernels() const override { return kernels::cuda::kernel_table(); }
  void* stream() const override { return nullptr; }  // what is issued has run
  void to_device(void* device, const void* host, size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);  // a tensor without elements may be nowhere
  }
  void to_host(void* host, const void* device, size_t bytes) override {
    to_device(host, device, bytes);
    ++num_waits_;
  }
  /// How often the CPU would have waited for the GPU.
  int num_waits() const { return num_waits_; }

 private:
  int num_waits_ = 0;
};

class EmulatedAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Category category) override { return host_.allocate(bytes, category); }
  void deallocate(void* block, size_t bytes) noexcept override { host_.deallocate(block, bytes); }
  Device device() const override { return {DeviceType::Cuda, 0}; }

 private:
  HostAllocator host_;
};

/// The GPU of one rank.
struct EmulatedGpu {
  Memory memory{std::make_shared<EmulatedAllocator>()};
  EmulatedQueue queue;

  kernels::Place place() { return {memory, &queue}; }
  kernels::Context context(DType dtype = DType::F32) { return {memory, 1, nullptr, &queue, dtype}; }
};

}  // namespace sixfold::test
