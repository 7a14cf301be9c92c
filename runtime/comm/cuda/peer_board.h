// PeerBoard: what the members of a group on one host tell each other about operations on their GPUs, in memory that
// they share. Who has entered what; where in the arenas new links lie; and, where kernels may not wait, the flags.
//
// All of it is written by one rank and read by others without waiting, so it can be looked at while the engine polls.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/host/signature.h"

namespace sixfold::comm {

inline constexpr int kNumBoardChannels = 4 + kNumLanes;  // of schedules, then lanes

/// Where the memory of a rank's ends of new links begins: offsets in its arena.
struct LinkOffer {
  uint64_t flags = 0, slots = 0;
};

class PeerBoard {
 public:
  static size_t region_bytes(int size);
  /// `region`: zeroed, shared by all members.
  PeerBoard(std::shared_ptr<SharedRegion> region, int rank, int size);

  /// Collectives that `rank` has entered.
  SignatureRing& collectives(int rank) const;
  /// Messages of a lane: what the sender, or the receiver, has entered.
  enum class Side : uint8_t { Sender, Receiver };
  SignatureRing& messages(int sender, int receiver, int lane, Side side) const;
  /// "operation #3 is (...) on rank 0 of the group, (...) on rank 1", where the two are known and differ; else empty.
  static std::string disagreement(const SignatureRing& mine, int rank, const SignatureRing& theirs, int other,
                                  uint64_t sequence);

  /// The members put up offers in rounds, 0, 1, ..., the same ones on all of them, `words` (of at most the group's
  /// size) with each. A rank puts one up when it has seen all of the round before.
  void offer(uint64_t round, const LinkOffer& offer, std::span<const uint64_t> words = {});
  /// By rank; nothing before all have put theirs up.
  std::optional<std::vector<LinkOffer>> offers(uint64_t round) const;
  /// Of an offer that is up.
  std::vector<uint64_t> words(uint64_t round, int rank) const;
  /// Once in the life of the group, between this rank and `peer`, which may be itself.
  void offer_to(int peer, int lane, const LinkOffer& offer);
  std::optional<LinkOffer> offer_from(int peer, int lane) const;

  /// Flags of the link from `sender` to `receiver` where the host waits: messages sent, messages received.
  struct alignas(64) Flags {
    std::atomic<uint64_t> tail, head;
  };
  Flags& flags(int sender, int receiver, int channel) const;

  /// This rank has ended the group.
  void leave();
  /// Whether all have.
  static bool is_left(const SharedRegion& region, int size);
  const std::shared_ptr<SharedRegion>& region() const { return region_; }

 private:
  struct Offer {
    std::atomic<uint64_t> round_after;  // the round it is of + 1; 0: none
    LinkOffer offer;
  };
  struct alignas(64) Rank {
    std::atomic<uint64_t> has_left;
    Offer offers[2];  // of even and odd rounds
    SignatureRing collectives;
  };

  size_t pair(int from, int to) const { return static_cast<size_t>(from) * size_ + static_cast<size_t>(to); }
  Rank& rank_of(int rank) const;
  std::atomic<uint64_t>* words_of(uint64_t round, int rank) const;

  std::shared_ptr<SharedRegion> region_;
  int rank_;
  size_t size_;
  struct Places {  // offsets in the region
    size_t words, pair_offers, flags, messages, end;
    explicit Places(size_t size);
  };
  Places places_;
};

}  // namespace sixfold::comm
