// GroupLinks: the shared memory of one group, seen by one rank: everyone's signatures, the links of every pair, and the
// buffers that peers can be reached in.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/host/link.h"
#include "runtime/comm/host/pacer.h"
#include "runtime/comm/host/shared_heap.h"
#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/host/signature.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

inline constexpr int kNumScheduleChannels = 4;  // two trees run up and down, each on a channel of its own
inline constexpr int kNumChannels = kNumScheduleChannels + kNumLanes;

class GroupLinks {
 public:
  /// `members`: the ranks of the World, in the group's order. The region must be zeroed at first and hold
  /// region_bytes(). Slots of the links that this rank sends on are accounted in `memory`, as they are first used.
  /// Without a pacer, links are as fast as they can.
  GroupLinks(std::shared_ptr<SharedRegion> region, int rank, std::vector<int> members, const LinkOptions& options,
             Memory& memory, PeerMemory& peers, Pacer* pacer);
  ~GroupLinks();
  GroupLinks(const GroupLinks&) = delete;
  GroupLinks& operator=(const GroupLinks&) = delete;

  static size_t region_bytes(int size, const LinkOptions& options);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  const LinkOptions& options() const { return options_; }
  SignatureRing& signatures(int rank) const;
  /// The first operation, of those still in the tables, that this rank and `peer` have entered as different things,
  /// named with both sides; empty when they agree.
  std::string disagreement(int peer) const;
  /// The end of this rank; made at first use. Channels below kNumScheduleChannels belong to schedules, the rest to
  /// lanes.
  SendEnd& to(int peer, int channel);
  RecvEnd& from(int peer, int channel);
  /// For the header of a slice that leaves now.
  uint64_t arrives_ns(int peer, size_t bytes) {
    if (pacer_ == nullptr) return 0;
    return pacer_->send(members_[static_cast<size_t>(rank_)], members_[static_cast<size_t>(peer)], bytes);
  }
  /// Whether a slice is there, and the emulated link lets it be seen.
  static bool arrived(RecvEnd& from) {
    if (!from.ready()) return false;
    const uint64_t arrives_ns = from.header().arrives_ns;
    return arrives_ns == 0 || arrives_ns <= monotonic_ns();
  }
  /// As PeerMemory has them; `peer` is a rank of the group.
  uint64_t word_of(const void* data, size_t bytes) const { return peers_.word_of(data, bytes); }
  std::byte* reach(int peer, uint64_t word, size_t offset, size_t bytes) {
    return peers_.reach(members_[static_cast<size_t>(peer)], word, offset, bytes);
  }

 private:
  LinkMemory link(int sender, int receiver, int channel) const;

  std::shared_ptr<SharedRegion> region_;
  int rank_;
  std::vector<int> members_;
  LinkOptions options_;
  Memory& memory_;
  PeerMemory& peers_;
  Pacer* pacer_;
  int64_t accounted_bytes_ = 0;
  std::vector<std::optional<SendEnd>> send_;  // [peer * kNumChannels + channel]
  std::vector<std::optional<RecvEnd>> recv_;
};

}  // namespace sixfold::comm
