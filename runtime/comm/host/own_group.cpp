#include "runtime/comm/host/own_group.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <tuple>

#include "runtime/comm/host/p2p_run.h"
#include "runtime/comm/schedule/describe.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

/// A collective under way: the run, and its line in the communication table. Serves one collective after the other.
class CollectiveWork final : public WorkState {
 public:
  explicit CollectiveWork(OwnGroup& group) : WorkState(group.context().engine), group_(group) {}

  void begin(std::shared_ptr<const GroupPlan> plan, const Collective& c, uint64_t sequence, const Signature& signature,
             const WatchedOperation& operation, GroupLinks& links, Workspace& workspace, const Fail& fail) {
    operation_ = operation;
    set_watched(operation);
    plan_ = std::move(plan);
    check_ = c.check;
    keeps_ = c.keeps;
    sequence_ = sequence;
    output_word_ = links.word_of(c.out, plan_->output_bytes);
    run_.emplace(links, plan_->plan, sequence, signature, c.in, c.out, workspace, fail);
    done_.store(false, std::memory_order_relaxed);
  }
  bool done() const override { return done_.load(std::memory_order_acquire); }
  std::string describe() const override {
    return std::string(primitive_name(plan_->signature.primitive)) + " #" + std::to_string(sequence_) + " (" +
           plan_->tag + ") of group " + group_.key();
  }
  std::string diagnose() const override { return group_.diagnose(); }
  std::vector<int> awaited_ranks() const override { return group_.absent_ranks(); }

  bool advance() {
    if (operation_.started_s == 0) {
      group_.watch().start(operation_, seconds_now());
      const std::string problem = check_ ? check_() : std::string();
      if (!problem.empty()) group_.fail(describe(), problem);
      group_.publish_output(sequence_, output_word_);
    }
    const bool moved = run_->advance();
    if (!run_->done()) return moved;
    group_.finish_collective(operation_, *run_, sequence_);
    run_.reset();
    check_ = nullptr;
    keeps_.reset();
    done_.store(true, std::memory_order_release);
    return true;
  }

 private:
  OwnGroup& group_;
  std::shared_ptr<const GroupPlan> plan_;
  std::optional<ScheduleRun> run_;
  std::function<std::string()> check_;  // as Collective::check
  std::shared_ptr<const void> keeps_;
  WatchedOperation operation_;
  uint64_t sequence_ = 0, output_word_ = 0;
  std::atomic<bool> done_{true};  // the rank looks without the lock
};

/// Sends and receives that were issued together. Serves one batch after the other.
class TransferWork final : public WorkState {
 public:
  explicit TransferWork(OwnGroup& group) : WorkState(group.context().engine), group_(group) {}

  void begin(size_t num_parts, const WatchedOperation& first) {
    set_watched(first);
    num_left_.store(num_parts, std::memory_order_relaxed);
  }
  bool done() const override { return num_left_.load(std::memory_order_acquire) == 0; }
  std::string describe() const override { return group_.describe_transfer(*this); }
  std::string diagnose() const override { return "the peer has not matched it"; }
  std::vector<int> awaited_ranks() const override { return group_.absent_peers(*this); }
  void part_done() { num_left_.store(num_left_.load(std::memory_order_relaxed) - 1, std::memory_order_release); }

 private:
  OwnGroup& group_;
  std::atomic<size_t> num_left_{0};  // the rank looks without the lock
};

/// Messages of one peer, direction and lane, in order; only the front one moves.
struct OwnGroup::LaneQueue {
  struct Entry {
    P2pRun run;
    std::shared_ptr<TransferWork> work;
    WatchedOperation operation;
  };
  uint64_t next_sequence = 0;
  std::deque<Entry> entries;
  // The row of the tag that was used last.
  std::string tag;
  RecordedName tag_name;
  PhasedRow* row = nullptr;
};

namespace {
GroupMedia open_media(HostContext& context, const std::string& key, const std::vector<int>& members, int rank) {
  GroupMedia media{context.hosts.group(members), context.topology.group(members), nullptr, nullptr};
  std::vector<int> mates;  // in the World's numbers
  for (int r : media.hosts.ranks_of(media.hosts.node_of(rank))) mates.push_back(members[static_cast<size_t>(r)]);
  const size_t bytes = GroupLinks::region_bytes(static_cast<int>(mates.size()), context.links);
  media.region = mates.size() == 1 ? SharedRegion::anonymous(bytes) : context.regions.open(key, bytes, mates);
  if (media.hosts.spans_nodes()) {
    SIXFOLD_CHECK(context.carriers != nullptr, "a World on several hosts has carriers");
    const std::lock_guard guard(context.engine.lock());
    media.carrier = context.carriers->open(members, context.links);
  }
  return media;
}
}  // namespace

OwnGroup::OwnGroup(HostContext& context, std::string key, std::vector<int> members, int rank)
    : context_(context),
      key_(std::move(key)),
      topology_(context.topology.group(members)),
      table_(context.choice.table_for(topology_)),
      links_(open_media(context, key_, members, rank), rank, members, context.links, context.memory, context.peers,
             context.doorbells, context.pacer),
      plans_(planning()),
      fail_collective_([this](const std::string& reason) { fail(collectives_.front()->describe(), reason); }),
      fail_transfer_([this](const std::string& reason) { fail("group " + key_, reason); }) {
  {
    const std::lock_guard guard(context_.engine.lock());
    context_.engine.add(*this);
    watched_ = watch().add_group(key_, links_.members());
  }
  if (context_.debug && rank == 0) {
    log_info("group " + key_ + " of " + std::to_string(size()) + " ranks\n" + describe_group(topology_) +
             "algorithms by " + table_.source + (context_.deterministic ? "; deterministic: direct" : "") + "\n" +
             explain(table_.rows));
  }
}

PlanningContext OwnGroup::planning() const {
  return {rank(),         topology_,          table_.rows,           context_.engine.table(),
          context_.links, context_.algorithm, context_.deterministic};
}

OwnGroup::~OwnGroup() {
  // A rank that is failing does not wait for the others: they learn of it once the exception has left its World's body.
  // Neither does a forked child, whose operations they are not.
  const bool failing = std::uncaught_exceptions() > 0 || !recorder().in_own_process();
  context_.engine.close(*this, key_, !failing);
}

namespace {

/// One of `works` that serves no operation and that nobody waits for any more, or a new one.
template <typename Work>
std::shared_ptr<Work> idle_work(std::vector<std::shared_ptr<Work>>& works, OwnGroup& group) {
  for (const auto& work : works) {
    if (work.use_count() == 1) return work;
  }
  return works.emplace_back(std::make_shared<Work>(group));
}

}  // namespace

std::shared_ptr<WorkState> OwnGroup::start(const Collective& c) {
  const double start = seconds_now();
  const std::lock_guard guard(context_.engine.lock());
  OperationWatch::Standstill still(watch(), start);
  context_.engine.check_abort();
  const std::shared_ptr<const GroupPlan> plan = plans_.plan_for(c);
  const WatchedOperation operation = watch().issue(
      plan->row,
      {watched_, plan->tag_name, plan->signature, next_sequence_, -1, -1, plan->bytes, plan->predicted_sent_bytes},
      start);
  std::shared_ptr<WorkState> work = enqueue(plan, c, plan->signature, operation, start);
  poll();
  still.count(operation, seconds_now());
  return work;
}

std::shared_ptr<WorkState> OwnGroup::start_part(const Collective& c, const Signature& whole,
                                                const WatchedOperation& watched) {
  const std::shared_ptr<const GroupPlan> plan = plans_.plan_for(c);
  return enqueue(plan, c, whole, watch().part_of(watched, plan->row, plan->predicted_sent_bytes), seconds_now());
}

std::shared_ptr<WorkState> OwnGroup::enqueue(const std::shared_ptr<const GroupPlan>& plan, const Collective& c,
                                             const Signature& signature, const WatchedOperation& operation,
                                             double now_s) {
  const uint64_t sequence = next_sequence_++;
  links_.signatures(rank()).publish(sequence, signature, now_s);
  std::shared_ptr<CollectiveWork> work = idle_work(works_, *this);
  work->begin(plan, c, sequence, signature, operation, links_, workspace_, fail_collective_);
  collectives_.push_back(work);
  return work;
}

OwnGroup::LaneQueue& OwnGroup::lane(const P2p& transfer) {
  return lanes_[{transfer.kind, transfer.peer, transfer.options.lane}];
}

PhasedRow& OwnGroup::row_of(LaneQueue& queue, const P2p& transfer) {
  if (queue.row == nullptr || queue.tag != transfer.options.tag) {
    const Primitive primitive = transfer.kind == P2p::Kind::Send ? Primitive::Send : Primitive::Recv;
    queue.tag = transfer.options.tag;
    queue.tag_name = RecordedName(queue.tag);
    queue.row = &context_.engine.table().row(queue.tag, primitive, Algorithm::Auto, "own", size());
  }
  return *queue.row;
}

std::shared_ptr<WorkState> OwnGroup::transfer(std::span<const P2p> transfers) {
  const double start = seconds_now();
  const std::lock_guard guard(context_.engine.lock());
  OperationWatch::Standstill still(watch(), start);
  context_.engine.check_abort();
  std::shared_ptr<TransferWork> work;
  for (const P2p& transfer : transfers) {
    LaneQueue& queue = lane(transfer);
    const bool sends = transfer.kind == P2p::Kind::Send;
    const uint64_t bytes = transfer.buf.count * dtype_bytes(transfer.buf.dtype);
    const Signature signature{sends ? Primitive::Send : Primitive::Recv,
                              transfer.buf.dtype,
                              ReduceOp::Sum,
                              Algorithm::Auto,
                              0,
                              transfer.buf.count};
    PhasedRow& row = row_of(queue, transfer);
    const WatchedOperation operation =
        watch().issue(row,
                      {watched_, queue.tag_name, signature, queue.next_sequence, transfer.peer, transfer.options.lane,
                       bytes, sends ? static_cast<double>(bytes) : 0.0},
                      start);
    if (!work) {
      work = idle_work(transfer_works_, *this);
      work->begin(transfers.size(), operation);
    }
    enqueue(queue, transfer, transfer.buf.count, work, operation, start);
  }
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

std::shared_ptr<WorkState> OwnGroup::transfer_part(const P2p& transfer, uint64_t whole_count,
                                                   const WatchedOperation& watched) {
  LaneQueue& queue = lane(transfer);
  PhasedRow& row = row_of(queue, transfer);
  const bool sends = transfer.kind == P2p::Kind::Send;
  const auto bytes = static_cast<double>(transfer.buf.count * dtype_bytes(transfer.buf.dtype));
  const WatchedOperation operation = watch().part_of(watched, row, sends ? bytes : 0);
  std::shared_ptr<TransferWork> work = idle_work(transfer_works_, *this);
  work->begin(1, operation);
  enqueue(queue, transfer, whole_count, work, operation, seconds_now());
  return work;
}

void OwnGroup::enqueue(LaneQueue& queue, const P2p& transfer, uint64_t agreed_count,
                       const std::shared_ptr<TransferWork>& work, const WatchedOperation& operation, double now_s) {
  P2pRun run(links_, transfer, agreed_count, queue.next_sequence++, fail_transfer_);
  if (!run.is_send() && watch().times_waits()) run.post(now_s);
  queue.entries.push_back({std::move(run), work, operation});
  if (queue.entries.size() == 1) watch().start(queue.entries.front().operation, now_s);
  ++transfers_under_way_;
}

std::string OwnGroup::describe_transfer(const TransferWork& work) const {
  std::string text;
  for (const auto& [key, queue] : lanes_) {
    for (const LaneQueue::Entry& entry : queue.entries) {
      if (entry.work.get() == &work) text += (text.empty() ? "" : " and ") + entry.run.describe();
    }
  }
  return text + " of group " + key_;
}

bool OwnGroup::poll() {
  const bool moved = advance();
  // Nothing of an idle group is on its way: its operations end when all they sent has left.
  if (collectives_.empty() && transfers_under_way_ == 0) return moved;
  return links_.carry() || moved;  // what has just been sent leaves at once
}

bool OwnGroup::advance() {
  bool moved = false;
  while (!collectives_.empty()) {
    moved |= collectives_.front()->advance();
    if (!collectives_.front()->done()) break;
    collectives_.erase(collectives_.begin());
  }
  if (transfers_under_way_ == 0) return moved;
  for (auto& [key, queue] : lanes_) {
    moved |= advance_lane(queue);
  }
  return moved;
}

bool OwnGroup::advance_lane(LaneQueue& queue) {
  bool moved = false;
  while (!queue.entries.empty()) {
    LaneQueue::Entry& entry = queue.entries.front();
    moved |= entry.run.advance();
    if (!entry.run.done()) break;
    const double end = seconds_now();
    const bool is_awaited = std::any_of(queue.entries.begin(), queue.entries.end(), [&](const LaneQueue::Entry& e) {
      return e.work.get() == context_.engine.awaited();
    });
    watch().finish(entry.operation, end, entry.run.sent(), watch().times_waits() ? entry.run.peer_there_s() : 0,
                   is_awaited);
    entry.work->part_done();
    --transfers_under_way_;
    queue.entries.pop_front();
    if (!queue.entries.empty()) watch().start(queue.entries.front().operation, end);
  }
  return moved;
}

void OwnGroup::finish_collective(const WatchedOperation& operation, const ScheduleRun& run, uint64_t sequence) {
  const double end = seconds_now();
  if (!watch().times_waits()) return watch().finish(operation, end, run.sent(), 0, false);
  const bool is_awaited = std::any_of(collectives_.begin(), collectives_.end(),
                                      [&](const auto& work) { return work.get() == context_.engine.awaited(); });
  watch().finish(operation, end, run.sent(), std::max(links_.last_entered_s(sequence), run.last_heard_s()), is_awaited);
}

std::shared_ptr<WorkState> OwnGroup::outstanding() {
  if (!collectives_.empty()) return collectives_.front();
  if (transfers_under_way_ == 0) return nullptr;
  for (auto& [key, queue] : lanes_) {
    if (!queue.entries.empty()) return queue.entries.front().work;
  }
  return nullptr;
}

std::vector<int> OwnGroup::absent_ranks() const {
  std::vector<int> ranks;
  const uint64_t sequence = next_sequence_ - collectives_.size();
  for (int peer = 0; peer < size() && !collectives_.empty(); ++peer) {
    if (links_.shares_memory(peer) && links_.signatures(peer).entered() <= sequence) ranks.push_back(world_rank(peer));
  }
  return ranks;
}

std::vector<int> OwnGroup::absent_peers(const TransferWork& work) {
  std::vector<int> ranks;
  for (const auto& [key, queue] : lanes_) {
    for (const LaneQueue::Entry& entry : queue.entries) {
      const int peer = entry.run.transfer().peer;
      if (entry.work.get() != &work || !links_.shares_memory(peer) || entry.run.has_arrived()) continue;
      ranks.push_back(world_rank(peer));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string OwnGroup::diagnose() {
  if (collectives_.empty()) return "no collective of this group is under way";
  const uint64_t sequence = next_sequence_ - collectives_.size();
  const auto add = [](std::string& list, int peer) { list += (list.empty() ? "" : ", ") + std::to_string(peer); };
  std::string absent, unseen;
  for (int peer = 0; peer < size(); ++peer) {
    if (!links_.shares_memory(peer)) {
      add(unseen, peer);
      continue;
    }
    const std::string disagreement = links_.disagreement(peer);
    if (!disagreement.empty()) fail(collectives_.front()->describe(), disagreement);
    if (links_.signatures(peer).entered() <= sequence) add(absent, peer);
  }
  const std::string where = unseen.empty() ? "" : " on this host";
  std::string text = absent.empty() ? "all ranks of the group" + where + " have entered it"
                                    : "ranks of the group" + where + " that have not entered it: " + absent;
  if (!unseen.empty()) text += "; not known here of its ranks on another host: " + unseen;
  return text;
}

void OwnGroup::fail(const std::string& what, const std::string& reason) {
  context_.engine.fail(what + ": " + reason);
}

}  // namespace sixfold::comm
