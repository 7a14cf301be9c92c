#include "runtime/core/cuda/device_memory.h"

#include <cstring>
#include <string>

#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/error.h"

namespace sixfold::cuda {

namespace {
constexpr size_t kPieceAlignment = 512;  // bytes, as cudaMalloc aligns its own
}

DeviceBlock::DeviceBlock(size_t bytes) : bytes_(bytes) {
  size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  void* block = nullptr;
  check_cuda(cudaMalloc(&block, bytes),
             "cudaMalloc of " + std::to_string(bytes) + " bytes, " + std::to_string(free_bytes) + " are free");
  data_ = static_cast<std::byte*>(block);
}

DeviceBlock::~DeviceBlock() {
  cudaFree(data_);
}

void DeviceBlock::zero(size_t bytes, cudaStream_t stream) const {
  check_cuda(cudaMemsetAsync(data_, 0, bytes, stream), "cudaMemsetAsync");
}

namespace {
int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}
}  // namespace

DeviceArena::DeviceArena(size_t bytes) : device_(current_device()), block_(bytes), arena_(bytes, kPieceAlignment) {}

void* DeviceArena::allocate(size_t bytes, Category category) {
  const std::lock_guard lock(mutex_);
  const auto offset = arena_.allocate(bytes);
  if (!offset) {
    throw CommError("device memory: " + std::to_string(bytes) + " bytes for " + std::string(category_name(category)) +
                    ", the arena of " + std::to_string(block_.bytes()) + " bytes has room for " +
                    std::to_string(arena_.largest_free_bytes()));
  }
  return block_.data() + *offset;
}

void DeviceArena::deallocate(void* block, size_t) noexcept {
  const std::lock_guard lock(mutex_);
  arena_.release(static_cast<size_t>(static_cast<std::byte*>(block) - block_.data()));
}

PinnedMemory::PinnedMemory(size_t bytes) : bytes_(bytes) {
  void* block = nullptr;
  check_cuda(cudaHostAlloc(&block, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
             "cudaHostAlloc of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<std::byte*>(block);
  std::memset(data_, 0, bytes);
}

PinnedMemory::~PinnedMemory() {
  cudaFreeHost(data_);
}

}  // namespace sixfold::cuda
