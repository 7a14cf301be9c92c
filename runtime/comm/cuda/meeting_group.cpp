#include "runtime/comm/cuda/meeting_group.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace sixfold::comm {

/// One collective, or the messages of one batch.
class MeetingWork final : public WorkState {
 public:
  MeetingWork(MeetingGroup& group, std::string text, void* stream)
      : WorkState(group.engine(), stream), group_(group), text_(std::move(text)) {}
  /// `operation` has started.
  void add(std::shared_ptr<Rendezvous> part, const WatchedOperation& operation) {
    if (parts_.empty()) set_watched(operation);
    parts_.push_back(std::move(part));
    operations_.push_back(operation);
  }
  /// Part of a batch: a message, by its sender or its receiver.
  void add(std::shared_ptr<Rendezvous> part, const WatchedOperation& operation, int sender, int receiver, bool sends) {
    add(std::move(part), operation);
    messages_.push_back({sender, receiver, sends});
  }
  /// With a stream, what waits for the operation is the stream, and the rank goes on once it is launched.
  bool done() const override { return done_; }
  std::string describe() const override { return text_; }
  std::string diagnose() const override {
    const std::vector<int> ranks = awaited_ranks();
    if (ranks.empty()) return "all ranks have entered it, the device is at work";
    std::string text;
    for (int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return "ranks of the World that have not entered it: " + text;
  }
  std::vector<int> awaited_ranks() const override {
    std::vector<int> ranks;
    for (size_t i = 0; i < parts_.size(); ++i) {
      for (int r : group_.meeting().absent(*parts_[i])) ranks.push_back(group_.world_rank(peer_of(i, r)));
    }
    return ranks;
  }
  /// True when the operation itself is done, and the group can let go of it.
  bool advance() {
    if (!launched_) {
      launched_ = std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->launched(); });
      if (!launched_) return false;
      launched_s_ = seconds_now();
    }
    if (stream() != nullptr) done_ = true;
    for (const auto& part : parts_) {
      if (!part->work()->done()) return false;
    }
    const double end = seconds_now();
    const bool is_awaited = engine().awaited() == this;
    // Once all had come, it was launched.
    for (size_t i = 0; i < parts_.size(); ++i)
      engine().watch().finish(operations_[i], end, sent(i), launched_s_, is_awaited);
    done_ = true;
    return true;
  }

 private:
  void order_before(void* stream) override {
    for (const auto& part : parts_) part->work()->order_before(stream);
  }
  int peer_of(size_t part, int deposit) const {
    if (messages_.empty()) return deposit;
    return deposit == 0 ? messages_[part].sender : messages_[part].receiver;
  }
  SentBytes sent(size_t part) const {
    SentBytes sent = kNothingSent;
    if (messages_.empty()) {
      // The device does not say to whom.
      sent.add(parts_[part]->work()->sent_bytes(group_.rank()), LinkClass::Intra);
      if (group_.topology().spans_nodes()) sent.inter = -1;
    } else if (messages_[part].sends) {
      sent.add(parts_[part]->work()->sent_bytes(0), group_.topology().link(group_.rank(), messages_[part].receiver));
    }
    return sent;
  }

  MeetingGroup& group_;
  std::string text_;
  double launched_s_ = 0;
  std::vector<std::shared_ptr<Rendezvous>> parts_;
  std::vector<WatchedOperation> operations_;  // by part
  struct Message {
    int sender, receiver;
    bool sends;
  };
  std::vector<Message> messages_;  // by part; empty: the parts are collectives
  bool launched_ = false;
  std::atomic<bool> done_{false};  // the rank looks without the engine's lock
};

MeetingGroup::MeetingGroup(Meeting& meeting, std::unique_ptr<OwnGroup> host, OpenGroup open)
    : meeting_(meeting), host_(std::move(host)), open_(std::move(open)), plans_(host_->planning()) {
  const std::lock_guard guard(engine().lock());
  engine().add(*this);
  watched_ = host_->watch_device();
}

MeetingGroup::~MeetingGroup() {
  const bool failing = std::uncaught_exceptions() > 0;  // as OwnGroup
  engine().close(*this, host_->key(), !failing);
}

/// Deposits; what goes wrong there stops the World.
template <typename Arrive>
std::shared_ptr<Rendezvous> MeetingGroup::arrive(const std::string& what, const Arrive& arrive) {
  try {
    return arrive();
  } catch (const CommError& error) {
    engine().fail(what + ": " + error.what());
  }
}

std::shared_ptr<WorkState> MeetingGroup::start(const Collective& c) {
  if (c.host_memory) return host_->start(c);
  const double start = seconds_now();
  const std::lock_guard guard(engine().lock());
  OperationWatch::Standstill still(engine().watch(), start);
  engine().check_abort();
  const std::shared_ptr<const GroupPlan> plan = plans_.plan_for(c);
  const uint64_t sequence = next_sequence_++;
  const std::string text = std::string(primitive_name(c.primitive)) + " #" + std::to_string(sequence) + " (" +
                           plan->tag + ") of group " + host_->key();
  if (c.check) {  // of what an operation of the host group has brought
    engine().finish(*host_);
    const std::string problem = c.check();
    if (!problem.empty()) engine().fail(text + ": " + problem);
  }
  WatchedOperation operation = engine().watch().issue(
      plan->row, {watched_, plan->tag_name, plan->signature, sequence, -1, -1, plan->bytes, plan->predicted_sent_bytes},
      start);
  engine().watch().start(operation, seconds_now());
  auto work = std::make_shared<MeetingWork>(*this, text, c.stream);
  const Call call = c.call(rank(), topology());
  const auto part = arrive(text, [&] {
    return meeting_.arrive(host_->key(), sequence, call, rank(),
                           {plan->signature, c.in, c.out, c.in_place, c.counts, mark(c.stream)});
  });
  work->add(part, operation);
  under_way_.push_back(work);
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

std::shared_ptr<WorkState> MeetingGroup::transfer(std::span<const P2p> transfers) {
  const double start = seconds_now();
  const std::lock_guard guard(engine().lock());
  OperationWatch::Standstill still(engine().watch(), start);
  engine().check_abort();
  std::shared_ptr<MeetingWork> work;
  for (const P2p& transfer : transfers) {
    const bool sends = transfer.kind == P2p::Kind::Send;
    const int sender = sends ? rank() : transfer.peer, receiver = sends ? transfer.peer : rank();
    // Sending to oneself, both ends are counted here.
    Lane& lane = lanes_[{sends ? sender : -1 - sender, receiver, transfer.options.lane}];
    const uint64_t sequence = lane.next_sequence++, bytes = transfer.buf.count * dtype_bytes(transfer.buf.dtype);
    const Primitive primitive = sends ? Primitive::Send : Primitive::Recv;
    const std::string& tag = transfer.options.tag;
    const std::string text = std::string(sends ? "send to" : "recv from") + " rank " + std::to_string(transfer.peer) +
                             " #" + std::to_string(sequence) + " (" + tag + ") of group " + host_->key();
    PhasedRow& row = engine().table().row(tag, primitive, Algorithm::Auto, "own", size());
    // Both sides name it a send, so that the two of a matching pair are equal.
    Signature signature{Primitive::Send, transfer.buf.dtype, ReduceOp::Sum, Algorithm::Auto, 0, transfer.buf.count};
    Signature recorded = signature;
    recorded.primitive = primitive;
    WatchedOperation operation =
        engine().watch().issue(row,
                               {watched_, RecordedName(tag), recorded, sequence, transfer.peer, transfer.options.lane,
                                bytes, sends ? static_cast<double>(bytes) : 0.0},
                               start);
    engine().watch().start(operation, start);
    if (!work) work = std::make_shared<MeetingWork>(*this, text, transfer.options.stream);
    const std::string key = host_->key() + " " + std::to_string(sender) + ">" + std::to_string(receiver) + " lane " +
                            std::to_string(transfer.options.lane);
    const auto part = arrive(text, [&] {
      return meeting_.arrive_message(
          key, sequence, sends ? 0 : 1,
          {signature, transfer.buf.data, transfer.buf.data, false, nullptr, mark(transfer.options.stream)});
    });
    work->add(part, operation, sender, receiver, sends);
  }
  under_way_.push_back(work);
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

bool MeetingGroup::poll() {
  const size_t before = under_way_.size();
  std::erase_if(under_way_, [&](const std::shared_ptr<MeetingWork>& work) {
    try {
      return work->advance();
    } catch (const CommError& error) {
      engine().fail(work->describe() + ": " + error.what());
    }
  });
  return under_way_.size() < before;
}

std::shared_ptr<WorkState> MeetingGroup::outstanding() {
  return under_way_.empty() ? nullptr : under_way_.front();
}

std::unique_ptr<GroupBackend> MeetingGroup::split(int color, int key) {
  return open_(host_->split_own(color, key));
}

}  // namespace sixfold::comm
