// Memory of one rank, accounted by category.
//
// Each rank owns one Memory, also when ranks are threads of one process; every Tensor that owns storage takes it from a
// Memory. Freed blocks are kept and handed out again, because the first touch of a fresh page costs more than most
// kernels that would write it (10 us for 4 KiB on a virtual machine).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace sixfold {

enum class Category : uint8_t { Parameters, Gradients, Optimizer, Activations, Communication, Other };
inline constexpr size_t kNumCategories = 6;
inline constexpr Category kAllCategories[kNumCategories] = {Category::Parameters,    Category::Gradients,
                                                            Category::Optimizer,     Category::Activations,
                                                            Category::Communication, Category::Other};
std::string_view category_name(Category category);

enum class DeviceType : uint8_t { Cpu, Cuda };
struct Device {
  DeviceType type = DeviceType::Cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

inline constexpr size_t kAlignment = 64;  // bytes: a cache line, and a full AVX-512 register

/// Where blocks come from. Implementations must be callable from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes (> 0), aligned to kAlignment, content unspecified. Throws std::bad_alloc.
  virtual void* allocate(size_t bytes, Category category) = 0;
  virtual void deallocate(void* block, size_t bytes) noexcept = 0;
  /// Whose memory the blocks are.
  virtual Device device() const { return {}; }
};

/// Plain pages of this process; large blocks ask for huge pages.
class HostAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Category category) override;
  void deallocate(void* block, size_t bytes) noexcept override;
};

/// Counts what is live per category and remembers the peaks. Safe to call from any thread.
class Memory {
 public:
  /// `allocator` is shared with the blocks, so tensors may outlive the Memory's other users. Default: HostAllocator.
  explicit Memory(std::shared_ptr<Allocator> allocator = std::make_shared<HostAllocator>());
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// A block of `bytes` bytes, aligned to kAlignment, content unspecified. The Memory must outlive the block.
  /// bytes == 0 returns nullptr.
  std::shared_ptr<void> allocate(size_t bytes, Category category);

  Device device() const { return allocator_->device(); }

  /// For memory that is not taken from here but belongs to this rank (slots of links): adds `bytes` (may be negative).
  void account(Category category, int64_t bytes);

  size_t live_bytes(Category category) const;
  size_t peak_bytes(Category category) const;
  /// Largest sum over all categories at any one time; at most the sum of the categories' peaks.
  size_t peak_total_bytes() const;
  /// Sets all peaks to what is live now.
  void reset_peaks();

 private:
  void release(void* block, size_t requested_bytes, size_t block_bytes, Category category) noexcept;
  void count(Category category, int64_t bytes);  // mutex_ held

  std::shared_ptr<Allocator> allocator_;
  mutable std::mutex mutex_;
  // By category, because an allocator may take them from different places, and block size.
  std::map<std::pair<Category, size_t>, std::vector<void*>> free_blocks_;
  std::array<int64_t, kNumCategories> live_{}, peak_{};
  int64_t live_total_ = 0, peak_total_ = 0;
};

/// RAM of this process now, in bytes: its resident set, in which a page that k processes share counts 1/k (Pss of
/// /proc/self/smaps_rollup), since ranks map one another's buffers. 0 where the system does not tell.
size_t process_resident_bytes();

}  // namespace sixfold
