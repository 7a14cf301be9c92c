// OwnGroup: a group of ranks, its collectives run by our own schedules over host links.
#pragma once

#include <deque>
#include <map>

#include "runtime/comm/group_backend.h"
#include "runtime/comm/host/choice.h"
#include "runtime/comm/host/executor.h"
#include "runtime/comm/host/group_links.h"
#include "runtime/comm/host/group_plans.h"
#include "runtime/comm/host/progress.h"

namespace sixfold::comm {

/// What the groups of one rank share. The World owns it and outlives its groups.
struct HostContext {
  ProgressEngine& engine;
  Memory& memory;
  RegionProvider& regions;
  PeerMemory& peers;
  Doorbells& doorbells;
  const Topology& topology;   // of the World
  const Topology& hosts;      // of the World: ranks of one node share memory
  CarrierProvider* carriers;  // links between hosts; nullptr where all ranks share memory
  Pacer* pacer;               // nullptr: links are not emulated
  AlgorithmChoice& choice;
  LinkOptions links;
  Algorithm algorithm = Algorithm::Auto;  // where an operation's options leave it open
  bool deterministic = false;
  bool debug = false;
};

class CollectiveWork;
class TransferWork;
class OwnGroup;

/// How a group on a device puts there what a split of it has made on the host.
using OpenGroup = std::function<std::unique_ptr<GroupBackend>(std::unique_ptr<OwnGroup>)>;

class OwnGroup final : public GroupBackend, public Progressable {
 public:
  /// Called by all members (world ranks, in group order); `key` names the group once in the life of the World.
  OwnGroup(HostContext& context, std::string key, std::vector<int> members, int rank);
  /// Drives what is still under way to its end, unless the World has failed.
  ~OwnGroup() override;

  int rank() const override { return links_.rank(); }
  int size() const override { return links_.size(); }
  const Topology& topology() const override { return topology_; }
  Algorithm algorithm_for(const Collective& collective) const override { return plans_.choose(collective); }
  int world_rank(int r) const override { return links_.members().at(static_cast<size_t>(r)); }
  std::shared_ptr<WorkState> start(const Collective& collective) override;
  std::shared_ptr<WorkState> transfer(std::span<const P2p> transfers) override;
  std::unique_ptr<GroupBackend> split(int color, int key) override { return split_own(color, key); }
  std::unique_ptr<OwnGroup> split_own(int color, int key);
  /// Collective: another group of the same ranks; `suffix` is new for this group.
  std::unique_ptr<OwnGroup> beside(const std::string& suffix);

  // Parts of an operation that a group on a device counts and records as a whole; here only what they send is counted.
  // Under the engine's lock; poll() moves them.

  /// `whole`: what the ranks must agree on; `watched`: the operation that it is a part of. The tag is that of the
  /// whole.
  std::shared_ptr<WorkState> start_part(const Collective& collective, const Signature& whole,
                                        const WatchedOperation& watched);
  /// Of a message of `whole_count` elements in all.
  std::shared_ptr<WorkState> transfer_part(const P2p& transfer, uint64_t whole_count, const WatchedOperation& watched);

  bool poll() override;
  std::shared_ptr<WorkState> outstanding() override;
  bool wakes() const override { return links_.wakes(); }

  /// Why the oldest collective may be stuck. Throws CommError when a rank has entered another operation in its place.
  std::string diagnose();
  /// Ranks of the World, on this host, that have not entered the oldest collective.
  std::vector<int> absent_ranks() const;
  /// Ranks of the World, on this host, that have not matched messages of `work`.
  std::vector<int> absent_peers(const TransferWork& work);
  [[noreturn]] void fail(const std::string& what, const std::string& reason);
  /// What of `work` is still under way.
  std::string describe_transfer(const TransferWork& work) const;
  /// Lets peers write to the Output of the collective that is about to move.
  void publish_output(uint64_t sequence, uint64_t word) { links_.signatures(rank()).publish_output(sequence, word); }
  /// The front collective has ended.
  void finish_collective(const WatchedOperation& operation, const ScheduleRun& run, uint64_t sequence);
  HostContext& context() const { return context_; }
  FlightRecorder& recorder() { return context_.engine.recorder(); }
  const std::string& key() const { return key_; }
  /// The same ranks in records of a group on a device, "world.gpu": its operations have numbers of their own. Under the
  /// engine's lock.
  WatchedGroup watch_device() const { return watch().add_group(key_ + ".gpu", links_.members()); }
  OperationWatch& watch() const { return context_.engine.watch(); }
  /// What this group plans its own operations with.
  PlanningContext planning() const;

 private:
  struct LaneQueue;

  bool advance();
  bool advance_lane(LaneQueue& queue);
  std::shared_ptr<WorkState> enqueue(const std::shared_ptr<const GroupPlan>& plan, const Collective& collective,
                                     const Signature& signature, const WatchedOperation& operation, double now_s);
  void enqueue(LaneQueue& queue, const P2p& transfer, uint64_t agreed_count, const std::shared_ptr<TransferWork>& work,
               const WatchedOperation& operation, double now_s);
  std::unique_ptr<OwnGroup> open_among(const std::string& name, std::vector<int> members, int new_rank);
  LaneQueue& lane(const P2p& transfer);
  PhasedRow& row_of(LaneQueue& queue, const P2p& transfer);

  HostContext& context_;
  std::string key_;
  WatchedGroup watched_;
  Topology topology_;
  const AlgorithmChoice::Table& table_;
  GroupLinks links_;
  GroupPlans plans_;
  std::vector<std::shared_ptr<CollectiveWork>> works_;  // all that were ever under way at a time; reused
  // In the order of issue, few at a time; only the front one moves.
  std::vector<std::shared_ptr<CollectiveWork>> collectives_;
  Workspace workspace_;                                        // of the front one
  std::vector<std::shared_ptr<TransferWork>> transfer_works_;  // reused as works_ are
  Fail fail_collective_, fail_transfer_;
  uint64_t next_sequence_ = 0;
  std::map<std::tuple<P2p::Kind, int, int>, LaneQueue> lanes_;  // by kind, peer, lane
  size_t transfers_under_way_ = 0;
  int num_splits_ = 0;
};

}  // namespace sixfold::comm
