#include "runtime/comm/cuda/peer_links.h"

#include <set>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr size_t kLineBytes = kFlagStride * sizeof(uint64_t);

/// Counts the ends of each rank, in the order of their links.
class EndCounter {
 public:
  explicit EndCounter(const std::vector<PeerLinks::Key>& keys) {
    for (const auto& [sender, receiver, channel, split] : keys) ++num_received_[receiver];
  }
  /// Two lines an end: those of all received links of a rank come first.
  size_t received(int rank) { return next_received_[rank]++; }
  size_t sent(int rank) { return num_received_[rank] + next_sent_[rank]++; }

 private:
  std::map<int, size_t> num_received_, next_received_, next_sent_;
};

}  // namespace

std::vector<PeerLinks::Key> PeerLinks::missing(const Lowered& lowered, const std::function<int(int)>& rank_of) const {
  std::set<Key> keys;
  for (size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
    const auto& peers_of = lowered.ranks[rank].send_peers;
    for (size_t channel = 0; channel < peers_of.size(); ++channel) {
      for (int peer : peers_of[channel]) {
        for (int split = 0; split < lowered.shape.num_splits; ++split) {
          const Key key{rank_of(static_cast<int>(rank)), rank_of(peer), static_cast<int>(channel), split};
          if (!links_.contains(key)) keys.insert(key);
        }
      }
    }
  }
  return {keys.begin(), keys.end()};
}

LinkOffer PeerLinks::take(const std::vector<Key>& keys) {
  size_t num_received = 0, num_ends = 0;
  for (const auto& [sender, receiver, channel, split] : keys) {
    if (receiver == rank_) ++num_received;
    num_ends += (sender == rank_ ? 1u : 0u) + (receiver == rank_ ? 1u : 0u);
  }
  LinkOffer offer;
  if (num_ends > 0) {
    pieces_.push_back(arena_.take(num_ends * 2 * kLineBytes, PeerArena::Kind::Clean));
    offer.flags = pieces_.back().offset();
  }
  if (num_received > 0) {
    pieces_.push_back(arena_.take(num_received * slot_bytes_, PeerArena::Kind::Any));
    offer.slots = pieces_.back().offset();
  }
  return offer;
}

void PeerLinks::connect(const std::vector<Key>& keys, const std::function<LinkOffer(int)>& offer_of) {
  EndCounter counter(keys);
  for (const Key& key : keys) {
    const auto& [sender, receiver, channel, split] = key;
    const size_t received = counter.received(receiver), sent = counter.sent(sender);
    Ends& ends = links_[key];
    if (sender != rank_ && receiver != rank_) continue;
    const LinkOffer of_receiver = offer_of(receiver), of_sender = offer_of(sender);
    std::byte* const there = bases_[static_cast<size_t>(receiver)];
    std::byte* const here = bases_[static_cast<size_t>(sender)];
    ends.slots = there + of_receiver.slots + received * slot_bytes_;
    ends.tail = there + of_receiver.flags + received * 2 * kLineBytes;
    ends.received = ends.tail + kLineBytes;
    ends.head = here + of_sender.flags + sent * 2 * kLineBytes;
    ends.sent = ends.head + kLineBytes;
  }
}

BlockLink PeerLinks::end(int peer, int channel, int split, bool sends) const {
  const auto found = links_.find(sends ? Key{rank_, peer, channel, split} : Key{peer, rank_, channel, split});
  SIXFOLD_CHECK(found != links_.end(), "links are made before the lists that use them");
  const Ends& ends = found->second;
  const auto line = [](std::byte* at) { return reinterpret_cast<uint64_t*>(at); };
  return {ends.slots, line(ends.tail), line(ends.head), line(sends ? ends.sent : ends.received)};
}

}  // namespace sixfold::comm
