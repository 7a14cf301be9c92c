// GroupLinks: the shared memory of one group, seen by one rank: everyone's signatures, and the links of every pair.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/host/link.h"
#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/host/signature.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

inline constexpr int kNumScheduleChannels = 4;  // two trees run up and down, each on a channel of its own
inline constexpr int kNumChannels = kNumScheduleChannels + kNumLanes;

class GroupLinks {
 public:
  /// The region must be zeroed at first and hold region_bytes(). Slots of the links that this rank sends on are
  /// accounted in `memory`, as they are first used.
  GroupLinks(std::shared_ptr<SharedRegion> region, int rank, int size, const LinkOptions& options, Memory& memory);
  ~GroupLinks();
  GroupLinks(const GroupLinks&) = delete;
  GroupLinks& operator=(const GroupLinks&) = delete;

  static size_t region_bytes(int size, const LinkOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const LinkOptions& options() const { return options_; }
  SignatureRing& signatures(int rank) const;
  /// The first operation, of those still in the tables, that this rank and `peer` have entered as different things,
  /// named with both sides; empty when they agree.
  std::string disagreement(int peer) const;
  /// The end of this rank; made at first use. Channels below kNumScheduleChannels belong to schedules, the rest to
  /// lanes.
  SendEnd& to(int peer, int channel);
  RecvEnd& from(int peer, int channel);

 private:
  LinkMemory link(int sender, int receiver, int channel) const;

  std::shared_ptr<SharedRegion> region_;
  int rank_, size_;
  LinkOptions options_;
  Memory& memory_;
  int64_t accounted_bytes_ = 0;
  std::vector<std::optional<SendEnd>> send_;  // [peer * kNumChannels + channel]
  std::vector<std::optional<RecvEnd>> recv_;
};

}  // namespace sixfold::comm
