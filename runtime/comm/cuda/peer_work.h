// PeerWork: a collective, or the messages of a batch, on the device of one rank, from its entry until it is done.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/cuda/peer_arena.h"
#include "runtime/comm/cuda/peer_board.h"
#include "runtime/comm/host/progress.h"

namespace sixfold::comm {

class PeerWork final : public WorkState {
 public:
  /// `stream`: as Options::stream.
  PeerWork(ProgressEngine& progress, void* stream) : WorkState(progress, stream) {}

  /// What it is, or one more message of the batch: "all_reduce #3 (dp.grads)".
  void name(const std::string& text, const std::string& group, const WatchedOperation& watched);

  /// Another rank that takes part: what it has entered, beside what this rank has.
  struct Counterpart {
    int rank, world_rank;
    const SignatureRing *mine, *theirs;
    uint64_t sequence;
    int own_rank;
  };
  void expect(const Counterpart& counterpart) { counterparts_.push_back(counterpart); }
  /// Names both sides where one has entered something else in its place; else empty.
  std::string disagreement() const;
  /// When the last of them, and this rank, had entered it; 0 where that is not to be known.
  double all_there_s() const;

  /// With a stream, what waits for the operation is the stream, and the rank goes on once all is launched.
  bool done() const override { return done_.load(std::memory_order_acquire); }
  std::string describe() const override { return text_ + " of group " + group_; }
  std::string diagnose() const override;
  std::vector<int> awaited_ranks() const override;

  // By the group, under the engine's lock.

  /// One more part of it, which is a launch of its own.
  void add_part() { ++num_unlaunched_, ++num_undone_; }
  /// `mark`: when the part is done, and will be without the host; nullptr where the host still has to step through it.
  void part_launched(std::shared_ptr<DeviceMark> mark);
  void part_done();

 private:
  void order_before(void* stream) override;

  std::string text_, group_;
  std::vector<Counterpart> counterparts_;
  std::vector<std::shared_ptr<DeviceMark>> marks_;
  int num_unlaunched_ = 0, num_undone_ = 0;
  std::atomic<bool> done_{false};  // the rank looks without the lock
};

}  // namespace sixfold::comm
