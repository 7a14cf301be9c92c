// ShardGroups: who keeps the other shards, and who keeps the same one.
//
//   all ranks share one set of shards           shard group = the data-parallel group, no replicas
//   hybrid (HSDP), M nodes of n ranks           shard group = the ranks of this node, n shards
//                                               replica group = the ranks on this one's rail, one a node
//
// Source: Zhao et al., "PyTorch FSDP", VLDB 2023, section 3.2.2 (hybrid sharding).
#pragma once

#include <optional>

#include "runtime/comm/communicator.h"

namespace sixfold::parallel {

class ShardGroups {
 public:
  /// `group` outlives this. Collective over it. hybrid: every node has as many ranks (check_strategy).
  ShardGroups(comm::Communicator& group, bool hybrid);

  /// Everyone who shares the batch.
  comm::Communicator& all() { return all_; }
  comm::Communicator& shards() { return node_ ? *node_ : all_; }
  /// nullptr: nobody else has this rank's shard.
  comm::Communicator* replicas() { return rail_ ? &*rail_ : nullptr; }

 private:
  comm::Communicator& all_;
  std::optional<comm::Communicator> node_, rail_;
};

}  // namespace sixfold::parallel
