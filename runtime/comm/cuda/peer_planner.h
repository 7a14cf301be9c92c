// PeerPlanner: makes the collectives of a group ready to run on this rank's device. Plans of one shape are made once;
// the first one that needs new links, or the areas for low latency, takes memory and tells the other ranks where.
//
// All ranks prepare the same collectives in the same order, so each works out alone when there is something to tell.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/comm/cuda/peer_line.h"

namespace sixfold::comm {

/// What the parts of a group share. References outlive them.
struct PeerSetting {
  PeerDevice& device;
  PeerRunner runner;
  int rank, size;
  const std::vector<std::byte*>& bases;  // by rank: where this one reaches the arenas
  PeerBoard& board;
  const Topology& topology;

  /// Blocks for `bytes` of work over `num_channels` channels.
  BlockShape shape(size_t bytes, int max_splits, int num_channels, size_t element_bytes) const;
  /// Of a launch, those that wait for other ranks.
  int waiting_blocks(int max_splits) const { return runner == PeerRunner::Stepped ? 0 : max_splits; }
  /// Of all slots of a link.
  size_t link_bytes() const;
};

class PeerPlanner {
 public:
  explicit PeerPlanner(const PeerSetting& setting);

  /// Sets `plan` or `words`; false: other ranks have not told yet what it takes. Throws CommError.
  bool prepare(PeerPart& part);
  /// What it has taken of the arena and shares with other ranks, for it to retire.
  std::vector<PeerArena::Piece> release();

 private:
  using PlanKey = std::tuple<std::array<uint64_t, 2>, bool>;  // the signature, in place

  std::optional<std::vector<LinkOffer>> exchange(const std::function<LinkOffer()>& take,
                                                 std::span<const uint64_t> words = {});
  bool prepare_words(PeerPart& part);
  bool learn_counts(PeerPart& part);
  bool make_links();
  Lowered lower_for(const PeerPart& part) const;
  std::shared_ptr<PeerPlan> make_plan(const PeerPart& part);

  PeerSetting setting_;
  PeerLinks links_;
  std::vector<PeerArena::Piece> pieces_;
  std::byte* flags_ = nullptr;
  std::map<PlanKey, std::shared_ptr<PeerPlan>> plans_;
  uint64_t next_round_ = 0;  // of offers
  bool is_offered_ = false;  // in that round
  // Of the collective that is being prepared.
  bool knows_counts_ = false;
  std::optional<Lowered> lowered_;
  std::vector<PeerLinks::Key> new_links_;

  std::optional<std::vector<LinkOffer>> areas_;  // for low latency, by rank
};

}  // namespace sixfold::comm
