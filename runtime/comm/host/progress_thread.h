// ProgressThread: drives the outstanding operations of a rank while the rank computes. One per rank, where there is a
// core for it (WorldOptions::progress_thread).
//
//   drives   while operations are outstanding and the rank is not inside the communication layer; when nothing moves it
//            spins, yields and sleeps on the rank's doorbell, as waits do
//   rests    while there is nothing for it: the rank waits, and drives by itself, or nothing is outstanding. It looks
//            every 100 us, so that the rank need not wake it for each operation
//   parks    when it has rested for long: at no cost, until the rank next leaves the communication layer
//
// An exception ends the thread and comes out of the rank's next call (ProgressEngine::check_abort).
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/comm/host/progress.h"

namespace sixfold::comm {

class ProgressThread {
 public:
  /// Both by the rank's own thread, outside of the communication layer. `engine` outlives it. In a forked child of the
  /// rank the thread is gone, and the engine works as without.
  explicit ProgressThread(ProgressEngine& engine);
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

 private:
  using Driven = ProgressEngine::Driven;

  void run();
  Driven take_turn();
  void rest();

  ProgressEngine& engine_;
  std::atomic<bool> stops_{false};
  int num_rests_ = 0;  // since it last drove
  std::chrono::microseconds longest_sleep_{};
  std::thread thread_;
};

}  // namespace sixfold::comm
