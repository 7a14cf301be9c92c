// What tests share: ranks as threads under a deadline, and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/comm/world.h"

namespace sixfold::test {

/// Ends the process with a report when it lives longer than `seconds`: a hang is a failure, never a stuck test run.
class Deadline {
 public:
  explicit Deadline(double seconds, std::string what = "test")
      : thread_([this, seconds, what = std::move(what)] {
          std::unique_lock lock(mutex_);
          if (done_cv_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; })) return;
          std::fprintf(stderr, "DEADLINE: %s did not end within %.0f s\n", what.c_str(), seconds);
          std::fflush(stderr);
          std::abort();
        }) {}
  ~Deadline() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    done_cv_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_cv_;
  bool done_ = false;
  std::thread thread_;
};

/// Runs `body` on `num_ranks` thread ranks; rethrows the first exception; aborts after `deadline_s`.
inline void run_ranks(int num_ranks, const std::function<void(comm::World&)>& body, comm::WorldOptions options = {},
                      double deadline_s = 60) {
  Deadline deadline(deadline_s, std::to_string(num_ranks) + " ranks");
  options.num_ranks = num_ranks;
  comm::run_world(options, body);
}

}  // namespace sixfold::test
