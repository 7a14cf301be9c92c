// PeerMessages: messages between the members of a group whose GPUs reach one another. A message is a broadcast of two
// ranks; each peer, direction and lane has a stream and links of its own, so no message waits for another one there.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/comm/cuda/peer_planner.h"

namespace sixfold::comm {

class PeerMessages {
 public:
  /// `setting` is copied; what it refers to outlives this.
  explicit PeerMessages(const PeerSetting& setting);
  ~PeerMessages();

  /// Makes what a message needs on this rank; throws ConfigError where the device has no more of it. Before any of a
  /// batch is entered.
  void open(const P2p& transfer) { line(pair(transfer), transfer.kind); }
  /// Enters a message: gives it its number in the lane, tells the peer its signature, and names it to `work`, which
  /// `part` is of. `world_rank`: of the peer.
  uint64_t enter(const P2p& transfer, int world_rank, PeerWork& work, double now_s);
  void push(const P2p& transfer, PeerPart part);

  template <typename F>
  void for_each_line(const F& f) const {
    for (const auto& [key, pair] : pairs_) {
      for (const auto& line : pair->lines) {
        if (line) f(*line);
      }
    }
  }
  /// As PeerPlanner::release().
  std::vector<PeerArena::Piece> release();

 private:
  /// This rank and a peer, which may be itself, in one lane.
  struct Pair {
    Pair(const PeerSetting& setting, int peer_, int lane_);
    int peer, lane;
    PeerLinks links;
    std::vector<PeerLinks::Key> keys;  // both ways
    LinkOffer own;
    bool is_connected = false;
    std::unique_ptr<PeerLine> lines[2];  // by P2p::Kind
    std::map<std::pair<DType, size_t>, std::shared_ptr<PeerPlan>> plans[2];
    uint64_t next_sequence[2] = {};
  };

  Pair& pair(const P2p& transfer);
  PeerLine& line(Pair& pair, P2p::Kind kind);
  bool prepare(PeerPart& part, Pair& pair, P2p::Kind kind) const;
  std::shared_ptr<PeerPlan> make_plan(const PeerPart& part, Pair& pair, P2p::Kind kind) const;

  PeerSetting setting_;
  std::map<std::pair<int, int>, std::unique_ptr<Pair>> pairs_;  // by peer and lane
};

}  // namespace sixfold::comm
