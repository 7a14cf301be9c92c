#include "runtime/comm/host/own_group.h"

#include <algorithm>
#include <exception>
#include <tuple>

#include "runtime/comm/host/p2p_run.h"
#include "runtime/comm/observe/predict.h"
#include "runtime/comm/schedule/describe.h"
#include "runtime/comm/schedule/select.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

/// A collective under way: the run, and its line in the communication table.
class CollectiveWork final : public WorkState {
 public:
  CollectiveWork(OwnGroup& group, CommRow& row, std::string description)
      : WorkState(group.context().engine, row), group_(group), description_(std::move(description)) {}

  /// `output_word` names the Output for peers, once the run moves. `collective` is kept as long as it does.
  void set_run(std::unique_ptr<ScheduleRun> run, const Collective& collective, uint64_t sequence,
               uint64_t output_word) {
    run_ = std::move(run);
    collective_ = collective;
    sequence_ = sequence;
    output_word_ = output_word;
  }
  bool done() const override { return done_; }
  std::string describe() const override { return description_; }
  std::string diagnose() const override { return group_.diagnose(); }

  bool advance() {
    if (start_ == 0) {
      start_ = seconds_now();
      const std::string problem = collective_.check ? collective_.check() : std::string();
      if (!problem.empty()) group_.fail(description_, problem);
      group_.publish_output(sequence_, output_word_);
    }
    const bool moved = run_->advance();
    if (!run_->done()) return moved;
    row().seconds += seconds_now() - start_;
    row().sent_bytes += run_->sent_bytes();
    run_.reset();
    collective_ = {};
    done_ = true;
    return true;
  }

 private:
  OwnGroup& group_;
  std::string description_;
  std::unique_ptr<ScheduleRun> run_;
  Collective collective_;
  uint64_t sequence_ = 0, output_word_ = 0;
  double start_ = 0;
  bool done_ = false;
};

/// Sends and receives that were issued together.
class TransferWork final : public WorkState {
 public:
  TransferWork(OwnGroup& group, CommRow& row, std::string description, size_t num_parts)
      : WorkState(group.context().engine, row), description_(std::move(description)), num_left_(num_parts) {}

  bool done() const override { return num_left_ == 0; }
  std::string describe() const override { return description_; }
  std::string diagnose() const override { return "the peer has not matched it"; }
  void part_done() { --num_left_; }

 private:
  std::string description_;
  size_t num_left_;
};

/// Messages of one peer, direction and lane, in order; only the front one moves.
struct OwnGroup::LaneQueue {
  struct Entry {
    P2pRun run;
    std::shared_ptr<TransferWork> work;
    CommRow* row;
    double start;
  };
  uint64_t next_sequence = 0;
  std::deque<Entry> entries;
};

namespace {
GroupMedia open_media(HostContext& context, const std::string& key, const std::vector<int>& members, int rank) {
  GroupMedia media{context.hosts.group(members), nullptr, nullptr};
  std::vector<int> mates;  // in the World's numbers
  for (int r : media.hosts.ranks_of(media.hosts.node_of(rank))) mates.push_back(members[static_cast<size_t>(r)]);
  const size_t bytes = GroupLinks::region_bytes(static_cast<int>(mates.size()), context.links);
  media.region = mates.size() == 1 ? SharedRegion::anonymous(bytes) : context.regions.open(key, bytes, mates);
  if (media.hosts.spans_nodes()) {
    SIXFOLD_CHECK(context.carriers != nullptr, "a World on several hosts has carriers");
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
             context.pacer) {
  context_.engine.add(*this);
  if (context_.debug && rank == 0) {
    log_info("group " + key_ + " of " + std::to_string(size()) + " ranks\n" + describe_group(topology_) +
             "algorithms by " + table_.source + (context_.deterministic ? "; deterministic: direct" : "") + "\n" +
             explain(table_.rows));
  }
}

OwnGroup::~OwnGroup() {
  // A rank that is failing does not wait for the others: they learn of it once the exception has left its World's body.
  const bool failing = std::uncaught_exceptions() > 0;
  try {
    while (WorkState* work = outstanding()) {
      if (failing || context_.engine.abort().is_set()) break;
      context_.engine.wait(*work);
    }
  } catch (const CommError& error) {
    log_error("while closing group " + key_ + ": " + error.what());
  }
  context_.engine.remove(*this);
}

Algorithm OwnGroup::choose(const Collective& c) const {
  // All ranks must choose alike: of an AllToAll with counts per peer each knows its own part only.
  const bool known = !c.counts || c.primitive != Primitive::AllToAll;
  const size_t bytes = known ? operation_bytes(c.call(rank(), topology_), dtype_bytes(c.dtype)) : 0;
  const Algorithm automatic = select(c.primitive, bytes, topology_, context_.deterministic, table_.rows);
  if (context_.deterministic) return automatic;
  if (c.algorithm != Algorithm::Auto) return c.algorithm;
  // The World's default names one algorithm for all primitives; those that it does not exist for keep the automatic
  // one.
  const bool usable = context_.algorithm != Algorithm::Auto && applies(c, context_.algorithm);
  return usable ? context_.algorithm : automatic;
}

bool OwnGroup::applies(const Collective& c, Algorithm algorithm) const {
  return builder_applies(c.primitive, algorithm, &topology_) && (!c.counts || supports_counts(c.primitive, algorithm));
}

void OwnGroup::check_applies(const Collective& c, Algorithm algorithm) const {
  if (applies(c, algorithm)) return;
  std::string allowed = "auto";
  for (Algorithm other : kAlgorithms) {
    if (applies(c, other)) allowed += ", " + std::string(algorithm_name(other));
  }
  throw ConfigError("algorithm '" + std::string(algorithm_name(algorithm)) + "' for " +
                    std::string(primitive_name(c.primitive)) + (c.counts ? " with counts per rank" : "") +
                    " in a group on " + topology_.to_string() + ": allowed are " + allowed);
}

namespace {

/// What all ranks must agree on. Of counts per rank the signature holds a hash, in the place of the root; those of an
/// AllToAll, of which each rank knows its own only, have been compared before.
Signature signature_of(const Collective& c, Algorithm algorithm) {
  Signature signature{c.primitive, c.dtype, c.op, algorithm, c.root, c.count};
  if (!c.counts) return signature;
  if (c.primitive == Primitive::AllToAll) {
    signature.count = 0;
    return signature;
  }
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (size_t count : *c.counts) hash = (hash ^ count) * 0x100000001b3u;
  signature.root = static_cast<int32_t>((hash ^ hash >> 32) & 0x7fffffff);
  return signature;
}

}  // namespace

std::shared_ptr<WorkState> OwnGroup::start(const Collective& c) {
  context_.engine.check_abort();
  const Algorithm algorithm = choose(c);
  check_applies(c, algorithm);
  const uint64_t sequence = next_sequence_++;
  const Signature signature = signature_of(c, algorithm);
  links_.signatures(rank()).publish(sequence, signature);

  const size_t element_bytes = dtype_bytes(c.dtype);
  Call call = c.call(rank(), topology_);
  CommRow& row = context_.engine.table().row(c.tag, c.primitive, algorithm, "own", size());
  ++row.calls;
  row.bytes += operation_bytes(call, element_bytes);
  row.predicted_sent_bytes += predicted_sent_elements(algorithm, call) * static_cast<double>(element_bytes);

  const std::string what =
      std::string(primitive_name(c.primitive)) + " #" + std::to_string(sequence) + " (" + c.tag + ") of group " + key_;
  auto work = std::make_shared<CollectiveWork>(*this, row, what);
  call.step_capacity = static_cast<size_t>(context_.links.num_slots - 1) * (context_.links.slot_bytes / element_bytes);
  const size_t pass_count = max_pass_count(c.primitive, algorithm, size(), call.step_capacity, c.count, &topology_);
  auto run = std::make_unique<ScheduleRun>(links_, call, find_builder(c.primitive, algorithm), pass_count, sequence,
                                           signature, ExecutionBuffers{c.in, c.out, &scratch_, &accum_},
                                           [this, what](const std::string& reason) { fail(what, reason); });
  work->set_run(std::move(run), c, sequence, links_.word_of(c.out, output_count(call) * element_bytes));
  collectives_.push_back(work);
  const double start = seconds_now();
  poll();
  row.exposed_seconds += seconds_now() - start;
  return work;
}

OwnGroup::LaneQueue& OwnGroup::lane(const P2p& transfer) {
  return lanes_[{transfer.kind, transfer.peer, transfer.options.lane}];
}

std::shared_ptr<WorkState> OwnGroup::transfer(std::span<const P2p> transfers) {
  context_.engine.check_abort();
  std::shared_ptr<TransferWork> work;
  for (const P2p& transfer : transfers) {
    const bool sends = transfer.kind == P2p::Kind::Send;
    LaneQueue& queue = lane(transfer);
    const uint64_t sequence = queue.next_sequence++;
    const uint64_t bytes = transfer.buf.count * dtype_bytes(transfer.buf.dtype);
    CommRow& row = context_.engine.table().row(transfer.options.tag, sends ? Primitive::Send : Primitive::Recv,
                                               Algorithm::Auto, "own", size());
    ++row.calls;
    row.bytes += bytes;
    row.predicted_sent_bytes += sends ? static_cast<double>(bytes) : 0.0;
    const std::string what = std::string(sends ? "send to" : "recv from") + " rank " + std::to_string(transfer.peer) +
                             " #" + std::to_string(sequence) + " (" + transfer.options.tag + ") of group " + key_;
    if (!work) work = std::make_shared<TransferWork>(*this, row, what, transfers.size());
    queue.entries.push_back(
        {P2pRun(links_, transfer, sequence, [this, what](const std::string& reason) { fail(what, reason); }), work,
         &row, seconds_now()});
    ++transfers_under_way_;
  }
  poll();
  return work;
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
    collectives_.pop_front();
  }
  if (transfers_under_way_ == 0) return moved;
  for (auto& [key, queue] : lanes_) {
    while (!queue.entries.empty()) {
      LaneQueue::Entry& entry = queue.entries.front();
      moved |= entry.run.advance();
      if (!entry.run.done()) break;
      entry.row->seconds += seconds_now() - entry.start;
      entry.row->sent_bytes += entry.run.sent_bytes();
      entry.work->part_done();
      --transfers_under_way_;
      queue.entries.pop_front();
    }
  }
  return moved;
}

WorkState* OwnGroup::outstanding() {
  if (!collectives_.empty()) return collectives_.front().get();
  if (transfers_under_way_ == 0) return nullptr;
  for (auto& [key, queue] : lanes_) {
    if (!queue.entries.empty()) return queue.entries.front().work.get();
  }
  return nullptr;
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

std::unique_ptr<GroupBackend> OwnGroup::split(int color, int key) {
  // Everyone learns everyone's (color, key), and each works out its own group.
  const int64_t mine[2] = {color, key};
  std::vector<int64_t> all(2 * static_cast<size_t>(size()));
  Collective gather;
  gather.primitive = Primitive::AllGather;
  gather.in = mine;
  gather.out = all.data();
  gather.count = 2;
  gather.dtype = DType::I64;
  gather.algorithm = Algorithm::Direct;
  gather.tag = "split";
  context_.engine.wait(*start(gather));

  std::vector<std::pair<int64_t, int>> order;  // (key, rank in this group)
  for (int r = 0; r < size(); ++r) {
    const bool together = color < 0 ? r == rank() : all[2 * static_cast<size_t>(r)] == color;
    if (together) order.emplace_back(all[2 * static_cast<size_t>(r) + 1], r);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> members;
  int new_rank = 0;
  for (const auto& [unused, r] : order) {
    if (r == rank()) new_rank = static_cast<int>(members.size());
    members.push_back(world_rank(r));
  }
  const std::string name = key_ + "/" + std::to_string(num_splits_++) + "." +
                           (color < 0 ? "alone" + std::to_string(rank()) : std::to_string(color));
  auto group = std::make_unique<OwnGroup>(context_, name, std::move(members), new_rank);

  // A region must not go away before all have opened it: nobody leaves earlier.
  uint8_t token = 0;
  Collective barrier;
  barrier.in = barrier.out = &token;
  barrier.count = 1;
  barrier.dtype = DType::U8;
  barrier.op = ReduceOp::Max;
  barrier.in_place = true;
  barrier.algorithm = Algorithm::Direct;
  barrier.tag = "split";
  context_.engine.wait(*start(barrier));
  return group;
}

}  // namespace sixfold::comm
