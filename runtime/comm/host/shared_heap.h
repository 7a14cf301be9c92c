// SharedHeap: memory that the ranks of a World on one host read and write in each other.
//
// Every rank has a heap, a sparse region of virtual memory as large as the machine's, which all its mates (the ranks of
// its host) map at the start.
// Whatever a rank allocates there later, its peers can reach: an address travels as an offset into its owner's heap.
// The regions live as long as any rank that maps them, so a peer that is still reading never meets freed memory.
#pragma once

#include <mutex>
#include <vector>

#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/schedule/topology.h"
#include "runtime/core/memory.h"

namespace sixfold::comm {

/// Gives large blocks of the categories that travel (parameters, gradients, communication) out of a heap, and
/// everything else out of plain pages: those may be huge pages, which compute prefers. Blocks of the heap are never
/// given back to the system; Memory reuses them.
class SharedHeap final : public Allocator {
 public:
  explicit SharedHeap(std::shared_ptr<SharedRegion> region) : region_(std::move(region)) {}
  void* allocate(size_t bytes, Category category) override;
  void deallocate(void* block, size_t bytes) noexcept override;

 private:
  std::shared_ptr<SharedRegion> region_;
  HostAllocator plain_;
  std::mutex mutex_;
  size_t used_bytes_ = 0;
};

/// What one rank sees of its mates' heaps. One per rank; used by the rank's own thread.
class PeerMemory {
 public:
  /// No heaps: nobody reaches anybody.
  PeerMemory() = default;
  /// Collective over the World: every rank opens the heaps of all ranks on its node of `hosts`. A rank that is alone
  /// there has none.
  PeerMemory(RegionProvider& regions, int rank, const Topology& hosts);

  /// This rank's heap; nullptr where it has no mates.
  std::shared_ptr<SharedRegion> own_heap() const;
  /// Names [data, data + bytes) for peers: a word for reach(), 0 where it is not in this rank's heap.
  uint64_t word_of(const void* data, size_t bytes) const;
  /// Where this rank sees what `owner` (a rank of the World, on the same host) named by `word`, `offset` bytes on. The
  /// pages are mapped ahead of use. nullptr where that reaches beyond the heap.
  std::byte* reach(int owner, uint64_t word, size_t offset, size_t bytes);

 private:
  struct Heap {
    std::shared_ptr<SharedRegion> region;
    std::vector<bool> mapped;  // by grain: whether its pages are in this process's page table
  };
  int rank_ = 0;
  std::vector<Heap> heaps_;  // by rank; without a region for ranks of other hosts
};

}  // namespace sixfold::comm
