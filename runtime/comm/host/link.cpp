#include "runtime/comm/host/link.h"

#include <sys/mman.h>

namespace sixfold::comm {

namespace {
constexpr size_t kPage = 4096;
// Links begin on page boundaries, so that populating one touches no other.
size_t round_up_to_page(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}
}  // namespace

size_t LinkMemory::bytes(int num_slots, size_t slot_bytes) {
  return round_up_to_page(sizeof(Counter) + static_cast<size_t>(num_slots) * (sizeof(SlotLine) + slot_bytes));
}

LinkMemory LinkMemory::at(void* memory, int num_slots, size_t slot_bytes, Layout layout) {
  auto* base = static_cast<std::byte*>(memory);
  LinkMemory link;
  link.head = reinterpret_cast<Counter*>(base);
  const bool apart = layout == Layout::Apart;
  link.lines = base + sizeof(Counter);
  link.slots = link.lines + (apart ? static_cast<size_t>(num_slots) : 1) * sizeof(SlotLine);
  link.line_stride = sizeof(SlotLine) + (apart ? 0 : slot_bytes);
  link.slot_stride = slot_bytes + (apart ? 0 : sizeof(SlotLine));
  link.num_slots = static_cast<uint64_t>(num_slots);
  link.slot_bytes = slot_bytes;
  return link;
}

void LinkMemory::populate() const {
#ifdef MADV_POPULATE_WRITE
  // Linux 5.14; elsewhere the first slots are slower, which is all that a failure here means.
  madvise(head, bytes(static_cast<int>(num_slots), slot_bytes), MADV_POPULATE_WRITE);
#endif
}

}  // namespace sixfold::comm
