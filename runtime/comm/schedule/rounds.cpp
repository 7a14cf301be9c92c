// The makespan of one pass when every message takes one round and a rank sends at most one and receives at most one
// message a round. What a rank does locally takes no time. The messages of a channel leave in order: one whose receiver
// is busy holds up those behind it.
#include "runtime/comm/schedule/rounds.h"

#include <algorithm>
#include <deque>
#include <tuple>

namespace sixfold::comm {

namespace {

class Clock {
 public:
  explicit Clock(const std::vector<Schedule>& schedules) : schedules_(schedules), size_(schedules.size()) {
    for (const Schedule& schedule : schedules) num_channels_ = std::max(num_channels_, schedule.num_channels);
    next_step_.assign(size_, std::vector<size_t>(static_cast<size_t>(num_channels_), 0));
    outbox_.resize(size_ * static_cast<size_t>(num_channels_));
    arrived_.assign(size_ * size_ * static_cast<size_t>(num_channels_), 0);
  }

  int run() {
    for (;; ++round_) {
      for (size_t rank = 0; rank < size_; ++rank) run_rank(rank);
      if (!deliver()) return round_;
    }
  }
  const std::vector<TimedMessage>& messages() const { return messages_; }

 private:
  struct Message {
    size_t receiver;
    size_t step;
    int since;  // the round in which it began to wait
  };

  /// Everything that `rank` can do with what has arrived.
  void run_rank(size_t rank) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int channel = 0; channel < num_channels_; ++channel) {
        while (run_step(rank, channel)) moved = true;
      }
    }
  }

  bool run_step(size_t rank, int channel) {
    const std::vector<Step>& steps = schedules_[rank].steps;
    std::vector<size_t>& next = next_step_[rank];
    size_t& at = next[static_cast<size_t>(channel)];
    while (at < steps.size() && (steps[at].channel != channel || steps[at].count() == 0)) ++at;
    if (at == steps.size()) return false;
    const Step& step = steps[at];
    if (step.after != kNoStep) {
      const size_t awaited = static_cast<size_t>(step.after);
      if (next[static_cast<size_t>(steps[awaited].channel)] <= awaited) return false;
    }
    if (step.recv_peer != kNoPeer) {
      int& waiting = arrived(static_cast<size_t>(step.recv_peer), rank, channel);
      if (waiting == 0) return false;
      --waiting;
    }
    if (step.send_peer != kNoPeer) outbox(rank, channel).push_back({static_cast<size_t>(step.send_peer), at, round_});
    ++at;
    return true;
  }

  /// One round: each rank sends the oldest message of one channel, where its receiver is still free; where several want
  /// to reach a receiver, the one that has waited longest does. False when there was none.
  bool deliver() {
    std::vector<std::tuple<int, size_t, int>> waiting;  // since which round, sender, channel
    for (size_t rank = 0; rank < size_; ++rank) {
      for (int channel = 0; channel < num_channels_; ++channel) {
        if (!outbox(rank, channel).empty()) waiting.emplace_back(outbox(rank, channel).front().since, rank, channel);
      }
    }
    std::sort(waiting.begin(), waiting.end());
    std::vector<bool> sending(size_, false), receiving(size_, false);
    for (const auto& [since, rank, channel] : waiting) {
      const auto [receiver, step, unused] = outbox(rank, channel).front();
      if (sending[rank] || receiving[receiver]) continue;
      messages_.push_back({round_, static_cast<int>(rank), step});
      outbox(rank, channel).pop_front();
      sending[rank] = receiving[receiver] = true;
      ++arrived(rank, receiver, channel);
    }
    return !waiting.empty();
  }

  std::deque<Message>& outbox(size_t rank, int channel) {
    return outbox_[rank * static_cast<size_t>(num_channels_) + static_cast<size_t>(channel)];
  }
  int& arrived(size_t sender, size_t receiver, int channel) {
    return arrived_[(sender * size_ + receiver) * static_cast<size_t>(num_channels_) + static_cast<size_t>(channel)];
  }

  const std::vector<Schedule>& schedules_;
  size_t size_;
  int round_ = 0;
  int num_channels_ = 1;
  std::vector<std::vector<size_t>> next_step_;  // per rank and channel
  std::vector<std::deque<Message>> outbox_;     // per rank and channel: the messages that wait
  std::vector<int> arrived_;                    // per sender, receiver and channel: not taken yet
  std::vector<TimedMessage> messages_;          // delivered
};

}  // namespace

int count_rounds(const std::vector<Schedule>& schedules) {
  return Clock(schedules).run();
}

std::vector<TimedMessage> messages_by_round(const std::vector<Schedule>& schedules) {
  Clock clock(schedules);
  clock.run();
  return clock.messages();
}

}  // namespace sixfold::comm
