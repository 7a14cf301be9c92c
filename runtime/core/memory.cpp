#include "runtime/core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <new>
#include <string>

namespace sixfold {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLargestBlock = size_t{1} << 60;

// Blocks come in sizes of four per power of two, so that a freed block fits later requests of about its size and at
// most a fifth of it is lost.
size_t block_size(size_t bytes) {
  const size_t step = std::max(kAlignment, std::bit_floor(bytes) / 4);
  return (bytes + step - 1) / step * step;
}
}  // namespace

std::string_view category_name(Category category) {
  switch (category) {
    case Category::Parameters:
      return "parameters";
    case Category::Gradients:
      return "gradients";
    case Category::Optimizer:
      return "optimizer";
    case Category::Activations:
      return "activations";
    case Category::Communication:
      return "communication";
    case Category::Other:
      return "other";
  }
  return "unknown";
}

void* HostAllocator::allocate(size_t bytes, Category) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void* block = ::operator new (bytes, std::align_val_t{alignment});
  // Advice only: without huge pages everything works, with more page faults.
  if (bytes >= kHugePage) madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

void HostAllocator::deallocate(void* block, size_t bytes) noexcept {
  ::operator delete (block, std::align_val_t{bytes >= kHugePage ? kHugePage : kAlignment});
}

Memory::Memory(std::shared_ptr<Allocator> allocator) : allocator_(std::move(allocator)) {}

Memory::~Memory() {
  for (auto& [key, blocks] : free_blocks_) {
    for (void* block : blocks) allocator_->deallocate(block, key.second);
  }
}

std::shared_ptr<void> Memory::allocate(size_t bytes, Category category) {
  if (bytes == 0) return nullptr;
  if (bytes > kLargestBlock) throw std::bad_alloc();  // sizes are rounded up below
  const size_t size = block_size(bytes);
  void* block = nullptr;
  {
    std::lock_guard lock(mutex_);
    auto found = free_blocks_.find({category, size});
    if (found != free_blocks_.end() && !found->second.empty()) {
      block = found->second.back();
      found->second.pop_back();
    }
    count(category, static_cast<int64_t>(bytes));
  }
  if (block == nullptr) block = allocator_->allocate(size, category);
  return {block, [this, bytes, size, category](void* p) { release(p, bytes, size, category); }};
}

void Memory::release(void* block, size_t requested_bytes, size_t block_bytes, Category category) noexcept {
  std::lock_guard lock(mutex_);
  free_blocks_[{category, block_bytes}].push_back(block);
  count(category, -static_cast<int64_t>(requested_bytes));
}

void Memory::account(Category category, int64_t bytes) {
  std::lock_guard lock(mutex_);
  count(category, bytes);
}

void Memory::count(Category category, int64_t bytes) {
  const size_t i = static_cast<size_t>(category);
  live_[i] += bytes;
  live_total_ += bytes;
  peak_[i] = std::max(peak_[i], live_[i]);
  peak_total_ = std::max(peak_total_, live_total_);
}

size_t Memory::live_bytes(Category category) const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(live_[static_cast<size_t>(category)]);
}

size_t Memory::peak_bytes(Category category) const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(peak_[static_cast<size_t>(category)]);
}

size_t Memory::peak_total_bytes() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(peak_total_);
}

void Memory::reset_peaks() {
  std::lock_guard lock(mutex_);
  peak_ = live_;
  peak_total_ = live_total_;
}

size_t process_resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.rfind("Pss:", 0) == 0) return std::stoull(line.substr(4)) * 1024;
  }
  return 0;
}

}  // namespace sixfold
