// A machine without a GPU: lowered lists run by the executor kernel's own interpreter, with a thread for each block.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <tuple>

#include "runtime/comm/cuda/program_image.h"
#include "tests/collective_cases.h"

namespace sixfold::test {

/// A block that is one host thread, but for how it waits.
class OneThreadBlock {
 public:
  static uint32_t thread() { return 0; }
  static uint32_t num_threads() { return 1; }
  template <typename V>
  static V load(const V* address) {
    return *address;
  }
  template <typename V>
  static void pin(V&) {}
  static bool agree(bool ok) { return ok; }
  static void sync() {}
  static void raise(uint64_t* flag, uint64_t value) {
    std::atomic_ref<uint64_t>(*flag).store(value, std::memory_order_release);
  }

 protected:
  /// Between two looks of a wait: there are many more blocks than cores.
  static void rest(int turns) {
    if (turns < 16) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

class HostPlatform : public OneThreadBlock {
 public:
  HostPlatform(std::atomic<bool>& gave_up, std::chrono::steady_clock::time_point deadline)
      : gave_up_(gave_up), deadline_(deadline) {}
  bool await(const uint64_t* flag, uint64_t at_least, const comm::WaitPlace& place) {
    std::atomic_ref<uint64_t> value(*const_cast<uint64_t*>(flag));
    for (int turns = 0; value.load(std::memory_order_acquire) < at_least; ++turns) {
      if (gave_up_ || std::chrono::steady_clock::now() > deadline_) {
        gave_up_ = true;
        stuck_ = place;
        return false;
      }
      rest(turns);
    }
    return true;
  }
  const comm::WaitPlace& stuck() const { return stuck_; }

 private:
  std::atomic<bool>& gave_up_;
  std::chrono::steady_clock::time_point deadline_;
  comm::WaitPlace stuck_;
};

/// f.operator()<op>() with the op that kernels of `op` are compiled for.
template <typename F>
void with_op(ReduceOp op, const F& f) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return f.template operator()<ReduceOp::Sum>();
    case ReduceOp::Min:
      return f.template operator()<ReduceOp::Min>();
    case ReduceOp::Max:
      return f.template operator()<ReduceOp::Max>();
    case ReduceOp::Prod:
      return f.template operator()<ReduceOp::Prod>();
  }
}

/// Links and flags of all ranks of one group, which live on from one operation to the next.
class LoweredMachine {
 public:
  LoweredMachine(int num_splits, int num_slots, size_t slot_bytes)
      : num_splits_(num_splits), num_slots_(num_slots), slot_bytes_(slot_bytes) {}

  comm::BlockShape shape(DType dtype) const {
    return comm::BlockShape::of(num_splits_, num_slots_, slot_bytes_, dtype_bytes(dtype));
  }

  /// Input and Output of one rank.
  struct Buffers {
    const void* input;
    void* output;
  };
  /// "" or where a block got stuck. buffers[r]: of rank r.
  std::string run(const comm::Lowered& lowered, DType dtype, ReduceOp op, const std::vector<Buffers>& buffers,
                  float scale, double deadline_s = 30);

 private:
  struct Line {
    alignas(128) uint64_t value = 0;
  };
  struct Link {
    Line tail, head, sent, received;
    std::unique_ptr<std::byte[]> slots;
  };
  struct RankState {
    RankState(LoweredMachine& machine, const comm::Lowered& lowered, size_t rank, const Buffers& buffers, float scale,
              size_t element_bytes)
        : image(lowered, static_cast<int>(rank), scale,
                [&](int peer, int channel, int split, bool sends) {
                  const int own = static_cast<int>(rank);
                  Link& link = machine.link(sends ? own : peer, sends ? peer : own, channel, split);
                  return comm::BlockLink{link.slots.get(), &link.tail.value, &link.head.value,
                                         sends ? &link.sent.value : &link.received.value};
                }),
          program(image.view()),
          scratch(lowered.ranks[rank].scratch_count * element_bytes + 16),
          accum(lowered.ranks[rank].accum_count * sizeof(uint64_t) + 16) {
      auto& flags = machine.flags_[rank];
      flags.resize(2 * kFlagLines);
      program.published = &flags[0].value;
      program.seen = &flags[kFlagLines].value;
      program.buffers[0] = static_cast<std::byte*>(const_cast<void*>(buffers.input));
      program.buffers[1] = static_cast<std::byte*>(buffers.output);
      program.buffers[2] = aligned(scratch);
      program.buffers[3] = aligned(accum);
    }
    static std::byte* aligned(std::vector<std::byte>& memory) {
      return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 15) / 16 * 16);
    }
    comm::ProgramImage image;
    comm::RankProgram program;
    std::vector<std::byte> scratch, accum;
  };
  static constexpr size_t kFlagLines = 64;  // channels x splits, at most

  Link& link(int sender, int receiver, int channel, int split) {
    Link& found = links_[{sender, receiver, channel, split}];
    if (!found.slots) found.slots = std::make_unique<std::byte[]>(static_cast<size_t>(num_slots_) * slot_bytes_);
    return found;
  }

  int num_splits_, num_slots_;
  size_t slot_bytes_;
  std::map<std::tuple<int, int, int, int>, Link> links_;
  std::map<size_t, std::vector<Line>> flags_;
};

/// One case of collective_cases.h on all ranks of `machine`; "" or what is wrong.
std::string run_lowered(LoweredMachine& machine, int size, const CollectiveCase& c,
                        const comm::Topology* topology = nullptr);

}  // namespace sixfold::test
