#include "runtime/comm/host/shared_heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

// Heaps are cut into grains, which are mapped as a whole: some page faults at once instead of one by one.
constexpr size_t kGrain = 64 * 1024;
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

bool travels(Category category) {
  return category == Category::Parameters || category == Category::Gradients || category == Category::Communication;
}

/// As much as could ever be in use: the file is sparse, and only pages that are touched exist.
size_t heap_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const size_t bytes = pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) : 0;
  return bytes / kGrain * kGrain;
}

// Touches all pages of [begin, begin + bytes) ahead of use; Linux 5.14. Elsewhere the first use is slower, which is all
// that a failure here means.
void populate(std::byte* begin, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  const auto address = reinterpret_cast<uintptr_t>(begin), first = address / kPage * kPage;
  madvise(begin - (address - first), address + bytes - first, MADV_POPULATE_WRITE);
#endif
}

}  // namespace

void* SharedHeap::allocate(size_t bytes, Category category) {
  if (travels(category)) {
    const std::lock_guard lock(mutex_);
    // Large blocks begin on a page of their own.
    const size_t alignment = bytes >= kPage ? kPage : kAlignment;
    const size_t begin = (used_bytes_ + alignment - 1) / alignment * alignment;
    if (begin <= region_->bytes() && bytes <= region_->bytes() - begin) {
      std::byte* block = region_->data() + begin;
      used_bytes_ = begin + bytes;
      if (bytes >= kHugePage) madvise(block, bytes, MADV_HUGEPAGE);  // advice, which memory files may not take
      populate(block, bytes);
      return block;
    }
  }
  return plain_.allocate(bytes, category);
}

void SharedHeap::deallocate(void* block, size_t bytes) noexcept {
  const auto* begin = static_cast<std::byte*>(block);
  const bool in_heap = begin >= region_->data() && begin < region_->data() + region_->bytes();
  if (!in_heap) plain_.deallocate(block, bytes);
}

PeerMemory::PeerMemory(RegionProvider& regions, int rank, const Topology& hosts) : rank_(rank) {
  const std::vector<int>& mates = hosts.ranks_of(hosts.node_of(rank));
  if (mates.size() == 1) return;
  heaps_.resize(static_cast<size_t>(hosts.size()));
  for (int owner : mates) {
    heaps_[static_cast<size_t>(owner)].region = regions.open("heap" + std::to_string(owner), heap_bytes(), mates);
  }
}

std::shared_ptr<SharedRegion> PeerMemory::own_heap() const {
  return heaps_.empty() ? nullptr : heaps_[static_cast<size_t>(rank_)].region;
}

uint64_t PeerMemory::word_of(const void* data, size_t bytes) const {
  if (heaps_.empty() || bytes == 0) return 0;
  const SharedRegion& own = *heaps_[static_cast<size_t>(rank_)].region;
  const auto begin = reinterpret_cast<uintptr_t>(data), base = reinterpret_cast<uintptr_t>(own.data());
  if (begin < base || begin - base > own.bytes() || bytes > own.bytes() - (begin - base)) return 0;
  return begin - base + 1;  // 0 is not a word
}

std::byte* PeerMemory::reach(int owner, uint64_t word, size_t offset, size_t bytes) {
  Heap& heap = heaps_.at(static_cast<size_t>(owner));
  SIXFOLD_CHECK(heap.region != nullptr, "only ranks of one host reach one another's heaps");
  const size_t begin = word - 1 + offset, end = begin + bytes;
  if (word == 0 || begin < offset || end < begin || end > heap.region->bytes()) return nullptr;
  if (heap.mapped.size() * kGrain < end) heap.mapped.resize((end + kGrain - 1) / kGrain);
  for (size_t grain = begin / kGrain; grain * kGrain < end; ++grain) {
    if (heap.mapped[grain]) continue;
    populate(heap.region->data() + grain * kGrain, kGrain);
    heap.mapped[grain] = true;
  }
  return heap.region->data() + begin;
}

}  // namespace sixfold::comm
