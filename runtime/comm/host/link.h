// Links: bounded FIFOs of slots, one per (sender, receiver, channel), in memory that both ranks see. The same layout
// serves threads (anonymous pages) and processes (a shared memory file).
//
//   sender    waits for a free slot, writes it, raises tail      (release)
//   receiver  waits for tail, reads the slot, raises head        (release)
//
// Ranks that share no memory have a FIFO each, and a carrier (carrier.h) is its other end: it takes slots out of the
// sender's and puts them into the receiver's.
//
// tail and head only grow. Each lies on a cache line of its own, and each side keeps a copy of the other's counter, so
// a slot costs one cache line transfer in each direction beside the data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/comm/host/doorbell.h"

namespace sixfold::comm {

/// What precedes a slot's bytes: of which operation they are, as the sender sees it, and where they lie.
struct alignas(64) SlotHeader {
  uint64_t sequence;
  uint64_t signature[2];
  uint64_t bytes;
  uint64_t place;       // kInSlot, kLanded, or the word by which the receiver reaches them in the sender's heap
  uint64_t arrives_ns;  // not to be seen before then (pacer.h); 0: at once
};
inline constexpr uint64_t kInSlot = 0;             // staged: the slot holds them
inline constexpr uint64_t kLanded = ~uint64_t{0};  // the sender has written them to where the receiver wants them

/// Position of one link in memory. The counters start at zero.
struct LinkMemory {
  struct alignas(64) Counter {
    std::atomic<uint64_t> value;
  };
  Counter* tail = nullptr;  // slots filled, written by the sender
  Counter* head = nullptr;  // slots emptied, written by the receiver
  std::byte* headers = nullptr;
  std::byte* slots = nullptr;
  uint64_t num_slots = 0;
  size_t slot_bytes = 0, header_stride = 0, slot_stride = 0;

  /// Of the slot that is the `number`th to be filled, from 0.
  SlotHeader& header(uint64_t number) const {
    return *reinterpret_cast<SlotHeader*>(headers + (number % num_slots) * header_stride);
  }
  std::byte* slot(uint64_t number) const { return slots + (number % num_slots) * slot_stride; }

  /// How headers and slots lie: all headers, then all slots, which is somewhat quicker between cores; or each header
  /// right before its slot, so that the two are one message.
  enum class Layout : uint8_t { Apart, Messages };
  static size_t bytes(int num_slots, size_t slot_bytes);
  static LinkMemory at(void* memory, int num_slots, size_t slot_bytes, Layout layout = Layout::Apart);
  /// Touches the pages ahead of use: a page fault costs more than the slot. Both sides pay it, once.
  void populate() const;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared between processes");

class SendEnd {
 public:
  /// `receiver`: the doorbell of whoever waits at the other end; nullptr where that is a carrier, which never sleeps.
  SendEnd(const LinkMemory& memory, Doorbell* receiver) : memory_(memory), receiver_(receiver) {}
  /// True when a slot is free.
  bool ready() {
    if (tail_ - head_seen_ < memory_.num_slots) return true;
    head_seen_ = memory_.head->value.load(std::memory_order_acquire);
    return tail_ - head_seen_ < memory_.num_slots;
  }
  /// The free slot and its header; only after ready().
  std::byte* slot() { return memory_.slot(tail_); }
  SlotHeader& header() { return memory_.header(tail_); }
  /// Hands the slot over. Counts header().bytes as sent.
  void commit() {
    sent_bytes_ += header().bytes;
    memory_.tail->value.store(++tail_, std::memory_order_release);
    if (receiver_ != nullptr) receiver_->ring();
  }
  uint64_t sent_bytes() const { return sent_bytes_; }
  /// True when the receiver has released all that was committed, and reads nothing of this side's memory any more;
  /// across hosts, when it has left this one.
  bool drained() {
    if (head_seen_ != tail_) head_seen_ = memory_.head->value.load(std::memory_order_acquire);
    return head_seen_ == tail_;
  }

 private:
  LinkMemory memory_;
  Doorbell* receiver_;
  uint64_t tail_ = 0, head_seen_ = 0;
  uint64_t sent_bytes_ = 0;
};

class RecvEnd {
 public:
  /// `sender`: as SendEnd's receiver.
  RecvEnd(const LinkMemory& memory, Doorbell* sender) : memory_(memory), sender_(sender) {}
  /// True when a slot has arrived.
  bool ready() {
    if (head_ < tail_seen_) return true;
    tail_seen_ = memory_.tail->value.load(std::memory_order_acquire);
    return head_ < tail_seen_;
  }
  const std::byte* slot() const { return memory_.slot(head_); }
  const SlotHeader& header() const { return memory_.header(head_); }
  /// Gives the slot back.
  void release() {
    memory_.head->value.store(++head_, std::memory_order_release);
    if (sender_ != nullptr) sender_->ring();
  }

 private:
  LinkMemory memory_;
  Doorbell* sender_;
  uint64_t head_ = 0, tail_seen_ = 0;
};

}  // namespace sixfold::comm
