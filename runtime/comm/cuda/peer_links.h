// PeerLinks: links between the ranks of a group whose GPUs reach one another. Slots lie on the receiver, the sender
// pushes (interpreter.h). A link is made when a list first uses it, and lives as long as the group, with its flags.
//
// Each rank takes memory for its own ends of all links that are made together, as one piece of flags and one of slots,
// and tells where they begin. Which end lies where in them follows from the links' order, so everybody works it out.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "runtime/comm/cuda/interpreter.h"
#include "runtime/comm/cuda/lowering.h"
#include "runtime/comm/cuda/peer_arena.h"
#include "runtime/comm/cuda/peer_board.h"

namespace sixfold::comm {

class PeerLinks {
 public:
  /// A link of one block: sender, receiver, channel, split.
  using Key = std::tuple<int, int, int, int>;

  /// `bases`: by rank of the group, where this rank reaches the arena. `slot_bytes`: of all slots of a link.
  PeerLinks(PeerArena& arena, int rank, std::vector<std::byte*> bases, size_t slot_bytes)
      : arena_(arena), rank_(rank), bases_(std::move(bases)), slot_bytes_(slot_bytes) {}

  /// Those of `lowered` that are not there yet, in order. The same on all ranks. `rank_of`: ranks of the group by those
  /// of the lists.
  std::vector<Key> missing(const Lowered& lowered, const std::function<int(int)>& rank_of) const;
  /// Takes memory for the ends that this rank has of `keys`.
  LinkOffer take(const std::vector<Key>& keys);
  /// Makes them. offer_of(rank): of the ranks at the other ends, and of this one.
  void connect(const std::vector<Key>& keys, const std::function<LinkOffer(int)>& offer_of);

  /// This rank's end of a link that is there.
  BlockLink end(int peer, int channel, int split, bool sends) const;
  /// What it has taken, for the arena to retire.
  std::vector<PeerArena::Piece> release() { return std::move(pieces_); }

 private:
  struct Ends {
    std::byte* slots = nullptr;                                                        // as this rank reaches them
    std::byte *tail = nullptr, *received = nullptr, *head = nullptr, *sent = nullptr;  // lines of flags
  };

  PeerArena& arena_;
  int rank_;
  std::vector<std::byte*> bases_;
  size_t slot_bytes_;
  std::map<Key, Ends> links_;  // of all ranks: who needs a new one follows from it. Ends: of this rank's only
  std::vector<PeerArena::Piece> pieces_;
};

}  // namespace sixfold::comm
