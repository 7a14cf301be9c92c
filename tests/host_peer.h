// A PeerDevice without a GPU: queues are threads, kernels are the kernels' own code with threads as blocks.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>

#include "runtime/comm/cuda/gpu_provider.h"
#include "runtime/comm/cuda/kernel_control.h"
#include "runtime/comm/cuda/peer_device.h"
#include "runtime/comm/host/shared_region.h"
#include "tests/host_clock.h"
#include "tests/host_grid.h"

namespace sixfold::test {

/// What kernels of one rank look at while they wait.
struct HostKernelControl {
  std::atomic<bool> aborted{false};
  std::atomic<int> num_running{0};  // tasks that are issued and not done
  double timeout_s = 20;
  std::mutex mutex;
  std::string stuck;  // guarded by it; the first kernel that gave up
  std::atomic<bool> is_stuck{false};
};

class PeerPlatform : public OneThreadBlock {
 public:
  PeerPlatform(HostKernelControl& control, uint32_t rank) : control_(control), rank_(rank) {}
  bool await(const uint64_t* flag, uint64_t at_least, const comm::WaitPlace& place) {
    std::atomic_ref<uint64_t> value(*const_cast<uint64_t*>(flag));
    return spin(
        place, at_least, [&] { return value.load(std::memory_order_acquire); },
        [&](uint64_t got) { return got >= at_least; });
  }
  static uint64_t load_word(const uint64_t* word) {
    return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_relaxed);
  }
  static void store_word(uint64_t* word, uint64_t value) {
    std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_relaxed);
  }
  bool await_word(const uint64_t* at, uint32_t number, uint64_t& word, const comm::WaitPlace& place) {
    return spin(
        place, number, [&] { return word = load_word(at); }, [&](uint64_t got) { return got >> 32 == number; });
  }

 private:
  template <typename Look, typename IsThere>
  bool spin(const comm::WaitPlace& place, uint64_t wanted, const Look& look, const IsThere& is_there) {
    const auto start = std::chrono::steady_clock::now();
    for (int turns = 0;; ++turns) {
      const uint64_t got = look();
      if (is_there(got)) return true;
      if (control_.aborted) return false;
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > control_.timeout_s) {
        const std::lock_guard lock(control_.mutex);
        const comm::StuckRecord record{
            1,          1,      rank_, place.kind, place.channel, place.split, place.connection, place.instruction,
            place.pass, wanted, got};
        if (control_.stuck.empty()) control_.stuck = comm::to_string(record);
        control_.is_stuck = true;
        return false;
      }
      rest(turns);
    }
  }

  HostKernelControl& control_;
  uint32_t rank_;
};

/// Calls block(i) for each of `count` blocks, at once.
template <typename F>
void run_blocks(int count, const F& block) {
  std::vector<std::thread> others;
  for (int i = 1; i < count; ++i) others.emplace_back(block, i);
  block(0);
  for (std::thread& thread : others) thread.join();
}

/// Runs tasks one after another on a thread of its own, some time after they were issued.
class HostQueue final : public comm::PeerQueue {
 public:
  explicit HostQueue(HostKernelControl& control) : control_(control), thread_([this] { run(); }) {}
  ~HostQueue() override {
    push(nullptr);
    thread_.join();
  }

  void wait_for(const comm::StreamMark&) override {}
  void upload(std::byte* to, std::span<const std::byte> from) override {
    push([to, bytes = std::vector<std::byte>(from.begin(), from.end())] {
      std::memcpy(to, bytes.data(), bytes.size());
    });
  }
  void launch(const comm::ProgramLaunch& launch) override {
    push([this, launch] {
      const comm::RankProgram program = program_of(launch);
      run_blocks(launch.num_blocks, [&](int index) {
        run_kernel(
            launch, program, [&](auto& run_of) { run_of.run(); }, static_cast<uint32_t>(index));
      });
    });
  }
  void launch(const comm::ProgramLaunch& launch, const comm::SliceOrder& slice, size_t) override {
    push([this, launch, slice] {
      const comm::RankProgram program = program_of(launch);
      run_kernel(
          launch, program, [&](auto& run_of) { run_of.run_slice(slice); }, slice.channel);
    });
  }
  void launch(const comm::LowLatencyLaunch& launch) override {
    push([this, launch] {
      constexpr int kBlocks = 2;
      run_blocks(kBlocks, [&](int block) {
        dispatch(launch.dtype, [&](auto element) {
          with_op(launch.op, [&]<ReduceOp op>() {
            PeerPlatform platform(control_, launch.arguments.rank);
            comm::LowLatencyRun<decltype(element), op, PeerPlatform>(platform, launch.arguments,
                                                                     static_cast<uint32_t>(block), kBlocks)
                .run();
          });
        });
      });
    });
  }
  std::shared_ptr<comm::DeviceMark> mark() override {
    auto mark = std::make_shared<Mark>(control_);
    push([mark] { mark->is_done = true; });
    return mark;
  }
  void push(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      ++control_.num_running;
    }
    come_.notify_one();
  }

 private:
  struct Mark final : comm::DeviceMark {
    explicit Mark(HostKernelControl& control_) : control(control_) {}
    bool done() override {
      if (control.is_stuck) {
        const std::lock_guard lock(control.mutex);
        throw CommError(control.stuck);
      }
      return is_done;
    }
    void order_before(void* stream) override { ++*static_cast<int*>(stream); }
    HostKernelControl& control;
    std::atomic<bool> is_done{false};
  };

  static comm::RankProgram program_of(const comm::ProgramLaunch& launch) {
    comm::RankProgram program = *launch.program;
    program.buffers[0] = static_cast<std::byte*>(const_cast<void*>(launch.input));
    program.buffers[1] = static_cast<std::byte*>(launch.output);
    return program;
  }
  /// Block `index`, channels x splits.
  template <typename F>
  void run_kernel(const comm::ProgramLaunch& launch, const comm::RankProgram& program, const F& f, uint32_t index) {
    dispatch(launch.dtype, [&](auto element) {
      with_op(launch.op, [&]<ReduceOp op>() {
        PeerPlatform platform(control_, static_cast<uint32_t>(launch.rank));
        comm::ProgramRun<decltype(element), op, PeerPlatform> block(platform, program, index / program.num_splits,
                                                                    index % program.num_splits);
        f(block);
      });
    });
  }
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      come_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (task) task();
      --control_.num_running;
      if (!task) return;
    }
  }

  HostKernelControl& control_;
  std::mutex mutex_;
  std::condition_variable come_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

class HostPeer final : public comm::PeerDevice {
 public:
  HostPeer(const comm::PeerShape& shape, double timeout_s, size_t arena_bytes)
      : shape_(shape),
        memory_(comm::SharedRegion::anonymous(arena_bytes)),
        arena_(memory_->data(), arena_bytes, arena_bytes / 2, [this](std::byte* begin, size_t bytes) {
          setup_.push([begin, bytes] { std::memset(begin, 0, bytes); });
          return setup_.mark();
        }) {
    control_.timeout_s = timeout_s;
  }

  comm::PeerShape shape() const override { return shape_; }
  comm::PeerArena& arena() override { return arena_; }
  comm::ArenaHandle arena_handle() const override {
    comm::ArenaHandle handle{};
    std::byte* const base = memory_->data();
    std::memcpy(handle.data(), &base, sizeof(base));
    return handle;
  }
  std::byte* reach(const comm::ArenaHandle& handle) override {
    std::byte* base = nullptr;
    std::memcpy(&base, handle.data(), sizeof(base));
    return base;
  }
  /// A stream is an int that counts what was ordered before its next work.
  std::shared_ptr<comm::StreamMark> mark(void*) override { return std::make_shared<comm::StreamMark>(); }
  std::unique_ptr<comm::PeerQueue> open_queue(int) override {
    ++num_queues_;
    return std::make_unique<HostQueue>(control_);
  }
  void abort() noexcept override {
    control_.aborted = true;
    while (control_.num_running > 0) std::this_thread::yield();
  }

  int num_queues() const { return num_queues_; }
  bool aborted() const { return control_.aborted; }

 private:
  comm::PeerShape shape_;
  std::shared_ptr<comm::SharedRegion> memory_;  // pages exist once touched
  HostKernelControl control_;
  HostQueue setup_{control_};
  comm::PeerArena arena_;
  std::atomic<int> num_queues_{0};
};

/// A GPU for each rank, all of which reach one another.
class HostPeers final : public comm::GpuProvider {
 public:
  HostPeers(int num_ranks, const comm::PeerShape& shape, double timeout_s = 20, size_t arena_bytes = 128 << 20) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      peers_.push_back(std::make_unique<HostPeer>(shape, timeout_s, arena_bytes));
    }
  }
  comm::GpuPlace place(int local_rank) override {
    comm::GpuPlace place;
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      comm::GpuId id;
      id.bytes[0] = static_cast<uint8_t>(rank);
      if (static_cast<int>(rank) == local_rank) {
        place.gpu = id;
      } else {
        place.peers.push_back(id);
      }
    }
    return place;
  }
  std::unique_ptr<comm::StreamClock> clock() override { return std::make_unique<HostClock>(streams_have_come_); }
  comm::GridDevice& grid(int) override { throw CheckError("ranks do not share a GPU"); }
  std::unique_ptr<comm::StagingDevice> staging(int) override { throw CheckError("not a staged World"); }
  HostPeer& peer(int local_rank) override { return *peers_.at(static_cast<size_t>(local_rank)); }

 private:
  const std::atomic<bool> streams_have_come_ = true;
  std::vector<std::unique_ptr<HostPeer>> peers_;
};

}  // namespace sixfold::test
