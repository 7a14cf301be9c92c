#include "runtime/comm/cuda/peer_work.h"

#include <algorithm>

namespace sixfold::comm {

void PeerWork::name(const std::string& text, const std::string& group, const WatchedOperation& watched) {
  if (text_.empty()) set_watched(watched);
  text_ += (text_.empty() ? "" : " and ") + text;
  group_ = group;
}

std::string PeerWork::disagreement() const {
  for (const Counterpart& c : counterparts_) {
    const std::string found = PeerBoard::disagreement(*c.mine, c.own_rank, *c.theirs, c.rank, c.sequence);
    if (!found.empty()) return found;
  }
  return "";
}

double PeerWork::all_there_s() const {
  double last = 0;
  for (const Counterpart& c : counterparts_) {
    last = std::max({last, c.mine->entered_at(c.sequence), c.theirs->entered_at(c.sequence)});
  }
  return last;
}

std::string PeerWork::diagnose() const {
  const std::string found = disagreement();
  if (!found.empty()) engine().fail(describe() + ": " + found);
  std::string absent;
  for (int rank : awaited_ranks()) absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
  return absent.empty() ? "all ranks have entered it, the device is at work"
                        : "ranks of the World that have not entered it: " + absent;
}

std::vector<int> PeerWork::awaited_ranks() const {
  std::vector<int> ranks;
  for (const Counterpart& c : counterparts_) {
    if (c.theirs->entered() <= c.sequence) ranks.push_back(c.world_rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void PeerWork::order_before(void* stream) {
  for (const auto& mark : marks_) mark->order_before(stream);
}

void PeerWork::part_launched(std::shared_ptr<DeviceMark> mark) {
  if (mark == nullptr) return;
  marks_.push_back(std::move(mark));
  if (--num_unlaunched_ == 0 && stream() != nullptr) done_.store(true, std::memory_order_release);
}

void PeerWork::part_done() {
  if (--num_undone_ == 0) done_.store(true, std::memory_order_release);
}

}  // namespace sixfold::comm
