// A GridDevice without a GPU: launches run at once, by the kernel's interpreter with threads as blocks.
#pragma once

#include <cstring>

#include "runtime/comm/cuda/direct_all_reduce.h"
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
  std::shared_ptr<comm::GridWork> launch(const comm::GridCollective& c) override {
    ++num_launches_;
    if (c.call.primitive == comm::Primitive::AllReduce && c.algorithm == comm::Algorithm::Direct) return direct(c);
    const comm::Lowered lowered = comm::lower(c.call, c.in_place, c.algorithm, machine_.shape(c.dtype));
    std::vector<LoweredMachine::Buffers> buffers;
    for (size_t rank = 0; rank < c.in.size(); ++rank) buffers.push_back({c.in[rank], c.out[rank]});
    const float scale = c.op == ReduceOp::Avg ? 1.0f / static_cast<float>(c.call.size) : 1.0f;
    const std::string stuck =
        dispatch(c.dtype, [&](auto element) { return run<decltype(element)>(lowered, c.op, buffers, scale); });
    if (!stuck.empty()) throw CommError("stuck: " + stuck);
    auto done = std::make_shared<Done>();
    for (size_t rank = 0; rank < c.in.size(); ++rank) {
      done->sent.push_back(comm::sent_elements(lowered, static_cast<int>(rank)) * dtype_bytes(c.dtype));
    }
    return done;
  }
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

  /// The kernel written by hand, by two threads a rank at a time.
  static std::shared_ptr<comm::GridWork> direct(const comm::GridCollective& c) {
    comm::DirectArguments arguments;
    arguments.num_ranks = static_cast<uint32_t>(c.call.size);
    arguments.scale = c.op == ReduceOp::Avg ? 1.0f / static_cast<float>(c.call.size) : 1.0f;
    std::copy(c.in.begin(), c.in.end(), arguments.input);
    std::copy(c.out.begin(), c.out.end(), arguments.output);
    comm::set_parts(arguments, c.call.count, dtype_bytes(c.dtype));
    auto done = std::make_shared<Done>();
    std::vector<std::thread> threads;
    constexpr uint32_t kBlocks = 2;
    for (uint32_t rank = 0; rank < arguments.num_ranks; ++rank) {
      done->sent.push_back(comm::direct_sent_elements(arguments, rank) * dtype_bytes(c.dtype));
      for (uint32_t block = 0; block < kBlocks; ++block) {
        threads.emplace_back([&, rank, block] {
          std::atomic<bool> gave_up = false;
          HostPlatform platform(gave_up, {});
          dispatch(c.dtype, [&](auto element) {
            run_direct<decltype(element)>(platform, c.op, arguments, rank, block, kBlocks);
          });
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
    return done;
  }

  template <typename T>
  static void run_direct(HostPlatform& platform, ReduceOp op, const comm::DirectArguments& arguments, uint32_t rank,
                         uint32_t block, uint32_t num_blocks) {
    switch (op) {
      case ReduceOp::Sum:
      case ReduceOp::Avg:
        return comm::direct_all_reduce<T, ReduceOp::Sum>(platform, arguments, rank, block, num_blocks);
      case ReduceOp::Min:
        return comm::direct_all_reduce<T, ReduceOp::Min>(platform, arguments, rank, block, num_blocks);
      case ReduceOp::Max:
        return comm::direct_all_reduce<T, ReduceOp::Max>(platform, arguments, rank, block, num_blocks);
      case ReduceOp::Prod:
        return comm::direct_all_reduce<T, ReduceOp::Prod>(platform, arguments, rank, block, num_blocks);
    }
  }

  template <typename T>
  std::string run(const comm::Lowered& lowered, ReduceOp op, const std::vector<LoweredMachine::Buffers>& buffers,
                  float scale) {
    switch (op) {
      case ReduceOp::Sum:
      case ReduceOp::Avg:
        return machine_.run<T, ReduceOp::Sum>(lowered, buffers, scale);
      case ReduceOp::Min:
        return machine_.run<T, ReduceOp::Min>(lowered, buffers, scale);
      case ReduceOp::Max:
        return machine_.run<T, ReduceOp::Max>(lowered, buffers, scale);
      case ReduceOp::Prod:
        return machine_.run<T, ReduceOp::Prod>(lowered, buffers, scale);
    }
    return "";
  }

  LoweredMachine machine_;
  std::atomic<int> num_launches_ = 0, num_marks_ = 0;
  std::atomic<bool> aborted_ = false;
};

}  // namespace sixfold::test
