// A GridDevice without a GPU: launches run at once, by the kernel's interpreter with threads as blocks.
#pragma once

#include <cstring>

#include "runtime/comm/cuda/grid_device.h"
#include "tests/lowered_machine.h"

namespace sixfold::test {

class HostGrid final : public comm::GridDevice {
 public:
  explicit HostGrid(int num_splits = 2, int num_slots = 4, size_t slot_bytes = 1024)
      : machine_(num_splits, num_slots, slot_bytes) {}

  /// A stream is an int that counts what was ordered before its next work.
  std::shared_ptr<comm::StreamMark> mark(void*) override {
    ++num_marks_;
    return std::make_shared<comm::StreamMark>();
  }
  std::shared_ptr<comm::GridWork> launch(const comm::GridCollective& collective) override;
  std::shared_ptr<comm::GridWork> launch(const comm::GridCopy& copy) override {
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
    auto done = std::make_shared<Done>();
    done->sent = {copy.bytes};
    return done;
  }
  void abort() noexcept override { aborted_ = true; }

  int num_launches() const { return num_launches_; }
  int num_marks() const { return num_marks_; }
  bool aborted() const { return aborted_; }

 private:
  struct Done final : comm::GridWork {
    bool done() override { return true; }
    void order_before(void* stream) override { ++*static_cast<int*>(stream); }
    uint64_t sent_bytes(int rank) const override { return sent.at(static_cast<size_t>(rank)); }
    std::vector<uint64_t> sent;
  };

  static std::shared_ptr<comm::GridWork> direct(const comm::GridCollective& collective);

  LoweredMachine machine_;
  std::atomic<int> num_launches_ = 0, num_marks_ = 0;
  std::atomic<bool> aborted_ = false;
};

}  // namespace sixfold::test
