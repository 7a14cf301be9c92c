// GroupLinks: what one rank of a group sees of the others. Of its mates, whose memory it shares: their signatures, a
// link to and from each, and the buffers that they can be reached in. Of ranks on other hosts: the links.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/host/carrier.h"
#include "runtime/comm/host/doorbell.h"
#include "runtime/comm/host/link.h"
#include "runtime/comm/host/pacer.h"
#include "runtime/comm/host/shared_heap.h"
#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/host/signature.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

inline constexpr int kNumScheduleChannels = 4;  // two trees run up and down, each on a channel of its own
inline constexpr int kNumChannels = kNumScheduleChannels + kNumLanes;

/// How the members of a group reach one another.
struct GroupMedia {
  Topology hosts;                        // of the group: ranks of one node share memory
  Topology nodes;                        // of the group: of which class links are
  std::shared_ptr<SharedRegion> region;  // of this rank and its mates; zeroed at first, region_bytes(mates) long
  std::unique_ptr<LinkCarrier> carrier;  // to all others; nullptr where there are none
};

class GroupLinks {
 public:
  /// `members`: the ranks of the World, in the group's order. Slots of the links that this rank sends on, and of those
  /// that come from other hosts, are accounted in `memory`, as they are first used. Without a pacer, links are as fast
  /// as they can. References outlive the GroupLinks.
  GroupLinks(GroupMedia media, int rank, std::vector<int> members, const LinkOptions& options, Memory& memory,
             PeerMemory& peers, Doorbells& doorbells, Pacer* pacer);
  ~GroupLinks();
  GroupLinks(const GroupLinks&) = delete;
  GroupLinks& operator=(const GroupLinks&) = delete;

  /// For so many ranks that share memory.
  static size_t region_bytes(int num_mates, const LinkOptions& options);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  const LinkOptions& options() const { return options_; }
  /// Whether `peer`'s signatures and buffers can be read here. To all others links carry bytes and nothing else.
  bool shares_memory(int peer) const { return signatures_[static_cast<size_t>(peer)] != nullptr; }
  /// Only of ranks that share memory.
  SignatureRing& signatures(int rank) const { return *signatures_[static_cast<size_t>(rank)]; }
  /// When the last of this rank's mates that have entered collective `sequence` did so; 0 where none is known to have.
  double last_entered_s(uint64_t sequence) const;
  LinkClass link_class(int peer) const { return link_classes_[static_cast<size_t>(peer)]; }
  /// The first operation, of those still in the tables, that this rank and `peer` have entered as different things,
  /// named with both sides; empty when they agree, or when the tables of `peer` cannot be read here.
  std::string disagreement(int peer) const;
  /// The end of this rank; made at first use. Channels below kNumScheduleChannels belong to schedules, the rest to
  /// lanes.
  SendEnd& to(int peer, int channel);
  RecvEnd& from(int peer, int channel);
  /// Whether this rank's doorbell rings whenever a slice can be seen, or a slot is free: not for what comes from other
  /// hosts, or when its time has come.
  bool wakes() const { return media_.carrier == nullptr && pacer_ == nullptr; }
  /// Carries slots to and from other hosts; true when anything moved.
  bool carry() { return media_.carrier && media_.carrier->poll(); }
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
  int num_mates() const;
  LinkMemory shared_link(int sender, int receiver, int channel) const;
  Doorbell* doorbell_of(int peer) const;
  void account_link();

  GroupMedia media_;
  int rank_;
  std::vector<int> members_;
  LinkOptions options_;
  Memory& memory_;
  PeerMemory& peers_;
  Doorbells& doorbells_;
  Pacer* pacer_;
  int64_t accounted_bytes_ = 0;
  std::vector<SignatureRing*> signatures_;    // by rank; nullptr on other hosts
  std::vector<LinkClass> link_classes_;       // by rank
  std::vector<std::optional<SendEnd>> send_;  // [peer * kNumChannels + channel]
  std::vector<std::optional<RecvEnd>> recv_;
};

}  // namespace sixfold::comm
