// A StagingDevice without a GPU: a thread for each direction copies, late and out of phase with everything else.
//
// An address of the device is one of the host with a bit that no address has, so whoever touches it without a copy
// crashes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/cuda/staging_device.h"
#include "runtime/core/error.h"

namespace sixfold::test {

constexpr uintptr_t kDeviceBit = uintptr_t{1} << 60;

template <typename T>
T* on_device(T* host) {
  return host == nullptr ? nullptr : reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(host) | kDeviceBit);
}

/// Work that is done in the order of issue, or throws from done().
struct HostEvent {
  std::atomic<bool> done = false;
};

/// A stream as tests have it: what was issued to it is done once `reached` is set; it follows the events it is given.
struct HostStream {
  std::atomic<bool> reached = true;
  std::vector<std::shared_ptr<HostEvent>> follows;
  /// Blocks until all that it follows is done.
  void synchronize() const {
    for (const auto& event : follows) {
      while (!event->done.load(std::memory_order_acquire)) std::this_thread::yield();
    }
  }
};

/// What the devices of a test have done, all ranks and groups together.
struct StagingCounts {
  std::atomic<int> pins = 0, unpins = 0, copies_to_host = 0, copies_to_device = 0;
  std::atomic<uint64_t> bytes_to_host = 0, bytes_to_device = 0;
  std::atomic<int> under_way = 0;     // copies
  std::atomic<bool> is_slow = false;  // every copy takes a few ms
  std::atomic<bool> breaks = false;   // from now on, the device fails
  std::mutex mutex;
  std::string order;  // of issue: H to the host, D to the device
};

class HostStaging final : public comm::StagingDevice {
 public:
  HostStaging(StagingCounts& counts, comm::StagingShape shape, unsigned seed)
      : counts_(counts), shape_(shape), to_host_(seed), to_device_(seed + 1) {}

  comm::StagingShape shape() const override { return shape_; }
  std::unique_ptr<comm::StagingEvent> mark(void* stream) override {
    return std::make_unique<Mark>(static_cast<HostStream*>(stream));
  }
  std::unique_ptr<comm::StagingEvent> copy_to_host(std::span<const comm::StagingCopy> copies) override {
    for (const comm::StagingCopy& c : copies) {
      check(c);
      counts_.bytes_to_host += c.bytes;
    }
    ++counts_.copies_to_host;
    log('H');
    return issue(to_host_, copies, [](const comm::StagingCopy& c) { std::memcpy(c.host, host_of(c), c.bytes); });
  }
  std::unique_ptr<comm::StagingEvent> copy_to_device(std::span<const comm::StagingCopy> copies) override {
    for (const comm::StagingCopy& c : copies) {
      check(c);
      counts_.bytes_to_device += c.bytes;
    }
    ++counts_.copies_to_device;
    log('D');
    return issue(to_device_, copies, [](const comm::StagingCopy& c) { std::memcpy(host_of(c), c.host, c.bytes); });
  }
  void pin(void* data, size_t bytes) override {
    SIXFOLD_CHECK_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u, "pages are pinned");
    pinned_[static_cast<std::byte*>(data)] = bytes;
    ++counts_.pins;
  }
  void drain() noexcept override {
    to_host_.drain();
    to_device_.drain();
  }
  void unpin(void* data) noexcept override {
    pinned_.erase(static_cast<std::byte*>(data));
    ++counts_.unpins;
  }

 private:
  /// A stream of the device: copies in the order of issue, each after a while.
  class Queue {
   public:
    explicit Queue(unsigned seed) : random_(seed), thread_([this] { run(); }) {}
    ~Queue() {
      {
        const std::lock_guard lock(mutex_);
        ends_ = true;
      }
      changed_.notify_all();
      thread_.join();
    }
    void push(std::function<void()> work) {
      {
        const std::lock_guard lock(mutex_);
        work_.push_back(std::move(work));
      }
      changed_.notify_all();
    }
    void drain() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return work_.empty(); });
    }

   private:
    void run() {
      std::unique_lock lock(mutex_);
      while (true) {
        changed_.wait(lock, [this] { return ends_ || !work_.empty(); });
        if (work_.empty()) return;
        const std::function<void()> work = work_.front();
        lock.unlock();
        if (random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 60));
        work();
        lock.lock();
        work_.pop_front();
        changed_.notify_all();
      }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;
    bool ends_ = false;
    std::minstd_rand random_;
    std::thread thread_;
  };

  class Mark final : public comm::StagingEvent {
   public:
    explicit Mark(HostStream* stream) : stream_(stream) {}
    bool done() override { return stream_->reached.load(std::memory_order_acquire); }
    void order_before(void*) override {}

   private:
    HostStream* stream_;
  };

  class Copied final : public comm::StagingEvent {
   public:
    Copied(StagingCounts& counts, std::shared_ptr<HostEvent> event) : counts_(counts), event_(std::move(event)) {}
    bool done() override {
      if (counts_.breaks) throw CommError("the copy engine is on fire");
      return event_->done.load(std::memory_order_acquire);
    }
    void order_before(void* stream) override { static_cast<HostStream*>(stream)->follows.push_back(event_); }

   private:
    StagingCounts& counts_;
    std::shared_ptr<HostEvent> event_;
  };

  static void* host_of(const comm::StagingCopy& c) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(c.device) & ~kDeviceBit);
  }
  void check(const comm::StagingCopy& c) const {
    SIXFOLD_CHECK(c.bytes > 0, "no empty copies");
    SIXFOLD_CHECK((reinterpret_cast<uintptr_t>(c.device) & kDeviceBit) != 0, "memory of the device");
    auto* const host = static_cast<std::byte*>(c.host);
    const auto after = pinned_.upper_bound(host);
    SIXFOLD_CHECK(after != pinned_.begin(), "pinned memory");
    const auto& [begin, bytes] = *std::prev(after);
    SIXFOLD_CHECK(host + c.bytes <= begin + bytes, "pinned memory");
  }
  void log(char direction) {
    const std::lock_guard lock(counts_.mutex);
    counts_.order += direction;
  }
  template <typename Copy>
  std::unique_ptr<comm::StagingEvent> issue(Queue& queue, std::span<const comm::StagingCopy> copies, Copy copy) {
    auto event = std::make_shared<HostEvent>();
    ++counts_.under_way;
    queue.push([this, event, copy, all = std::vector(copies.begin(), copies.end())] {
      if (counts_.is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      for (const comm::StagingCopy& c : all) copy(c);
      --counts_.under_way;
      event->done.store(true, std::memory_order_release);
    });
    return std::make_unique<Copied>(counts_, event);
  }

  StagingCounts& counts_;
  comm::StagingShape shape_;
  std::map<std::byte*, size_t> pinned_;
  Queue to_host_, to_device_;
};

}  // namespace sixfold::test
