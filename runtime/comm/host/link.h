// Links: bounded FIFOs of slots, one per (sender, receiver, channel), in memory that both ranks see. The same layout
// serves threads (anonymous pages) and processes (a shared memory file).
//
//   sender    waits for a free slot, writes it, numbers it            (release)
//   receiver  waits for the next number, reads the slot, raises head  (release)
//
// Ranks that share no memory have a FIFO each, and a carrier (carrier.h) is its other end: it takes slots out of the
// sender's and puts them into the receiver's.
//
// Slots are numbered from 1 on, and head counts those that the receiver has emptied; both only grow. The number shares
// a cache line with the header, so a message costs one line beside its data; head has a line of its own, which the
// sender looks at only when its slots seem to be full.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "runtime/comm/host/doorbell.h"

namespace sixfold::comm {

/// Of which operation a slot's bytes are, as the sender sees it, and where they lie.
struct SlotHeader {
  uint64_t sequence;
  uint64_t signature[2];
  uint64_t bytes;
  uint64_t place;       // kInSlot, kLanded, or the word by which the receiver reaches them in the sender's heap
  uint64_t arrives_ns;  // not to be seen before then (pacer.h); 0: at once
};
inline constexpr uint64_t kInSlot = 0;             // staged: the slot holds them
inline constexpr uint64_t kLanded = ~uint64_t{0};  // the sender has written them to where the receiver wants them

/// The line ahead of a slot.
struct alignas(64) SlotLine {
  std::atomic<uint64_t> number;  // of the message that it holds, written last; 0: none yet
  SlotHeader header;
};
static_assert(sizeof(SlotLine) == 64, "a cache line");

/// Position of one link in memory, all of it zero at first.
struct LinkMemory {
  struct alignas(64) Counter {
    std::atomic<uint64_t> value;
    // The last receives that were posted, of links that carry messages: see RecvEnd::post.
    struct Posted {
      std::atomic<uint64_t> number;  // of the message, from 1; 0 while it is written
      std::atomic<double> at_s;
    } posted[3];
  };
  Counter* head = nullptr;  // slots emptied, receives posted: written by the receiver
  std::byte* lines = nullptr;
  std::byte* slots = nullptr;
  uint64_t num_slots = 0;
  size_t slot_bytes = 0, line_stride = 0, slot_stride = 0;

  /// Of the slot that is the `index`th to be filled, from 0, and so has the number index + 1.
  SlotLine& line(uint64_t index) const {
    return *reinterpret_cast<SlotLine*>(lines + (index % num_slots) * line_stride);
  }
  std::byte* slot(uint64_t index) const { return slots + (index % num_slots) * slot_stride; }
  bool is_filled(uint64_t index) const { return line(index).number.load(std::memory_order_acquire) == index + 1; }
  void set_filled(uint64_t index) const { line(index).number.store(index + 1, std::memory_order_release); }

  /// How lines and slots lie: all lines, then all slots, which is somewhat quicker between cores; or each line right
  /// before its slot, so that header and bytes are one message.
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
    if (num_sent_ - head_seen_ < memory_.num_slots) return true;
    head_seen_ = memory_.head->value.load(std::memory_order_acquire);
    return num_sent_ - head_seen_ < memory_.num_slots;
  }
  /// The free slot and its header; only after ready().
  std::byte* slot() { return memory_.slot(num_sent_); }
  SlotHeader& header() { return memory_.line(num_sent_).header; }
  /// Hands the slot over. Counts header().bytes as sent.
  void commit() {
    sent_bytes_ += header().bytes;
    memory_.set_filled(num_sent_++);
    if (receiver_ != nullptr) receiver_->ring();
  }
  uint64_t sent_bytes() const { return sent_bytes_; }
  /// When the receiver posted the receive of message `index`, from 0; 0 where it has not, or has posted others since.
  double posted_at(uint64_t index) const {
    const auto& posted = memory_.head->posted[index % std::size(memory_.head->posted)];
    if (posted.number.load(std::memory_order_acquire) != index + 1) return 0;
    const double at_s = posted.at_s.load(std::memory_order_acquire);
    return posted.number.load(std::memory_order_acquire) == index + 1 ? at_s : 0;
  }
  /// True when the receiver has released all that was committed, and reads nothing of this side's memory any more;
  /// across hosts, when it has left this one.
  bool drained() {
    if (head_seen_ != num_sent_) head_seen_ = memory_.head->value.load(std::memory_order_acquire);
    return head_seen_ == num_sent_;
  }

 private:
  LinkMemory memory_;
  Doorbell* receiver_;
  uint64_t num_sent_ = 0, head_seen_ = 0;
  uint64_t sent_bytes_ = 0;
};

class RecvEnd {
 public:
  /// `sender`: as SendEnd's receiver.
  RecvEnd(const LinkMemory& memory, Doorbell* sender) : memory_(memory), sender_(sender) {}
  /// True when a slot has arrived.
  bool ready() const { return memory_.is_filled(head_); }
  const std::byte* slot() const { return memory_.slot(head_); }
  const SlotHeader& header() const { return memory_.line(head_).header; }
  /// For the sender to know: the receive of message `index`, from 0, is posted at `now_s`.
  void post(uint64_t index, double now_s) {
    auto& posted = memory_.head->posted[index % std::size(memory_.head->posted)];
    posted.number.store(0, std::memory_order_relaxed);
    posted.at_s.store(now_s, std::memory_order_release);
    posted.number.store(index + 1, std::memory_order_release);
  }
  /// Gives the slot back.
  void release() {
    memory_.head->value.store(++head_, std::memory_order_release);
    if (sender_ != nullptr) sender_->ring();
  }

 private:
  LinkMemory memory_;
  Doorbell* sender_;
  uint64_t head_ = 0;
};

}  // namespace sixfold::comm
