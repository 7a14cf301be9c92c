#include "runtime/comm/cuda/meeting_group.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace sixfold::comm {

/// One collective, or the messages of one batch.
class MeetingWork final : public WorkState {
 public:
  MeetingWork(MeetingGroup& group, CommRow& row, std::string text, void* stream, uint64_t record, double start)
      : WorkState(group.engine(), row), group_(group), text_(std::move(text)), stream_(stream), start_(start) {
    set_record(record);
  }
  void add(std::shared_ptr<Rendezvous> part) { parts_.push_back(std::move(part)); }
  /// Part of a batch: a message, by its sender or its receiver.
  void add(std::shared_ptr<Rendezvous> part, int sender, int receiver, bool sends) {
    add(std::move(part));
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
  void join() override {
    if (stream_ == nullptr || joined_) return;
    joined_ = true;
    for (const auto& part : parts_) part->work()->order_before(stream_);
  }
  /// True when the operation itself is done, and the group can let go of it.
  bool advance() {
    if (!launched_) {
      launched_ = std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->launched(); });
      if (!launched_) return false;
      engine().recorder().start(record(), seconds_now());
    }
    if (stream_ != nullptr) done_ = true;
    for (const auto& part : parts_) {
      if (!part->work()->done()) return false;
    }
    const double end = seconds_now();
    engine().recorder().finish(record(), end);
    row().seconds += end - start_;
    for (size_t i = 0; i < parts_.size(); ++i) row().sent_bytes += sent_bytes(i);
    done_ = true;
    return true;
  }

 private:
  int peer_of(size_t part, int deposit) const {
    if (messages_.empty()) return deposit;
    return deposit == 0 ? messages_[part].sender : messages_[part].receiver;
  }
  uint64_t sent_bytes(size_t part) const {
    if (messages_.empty()) return parts_[part]->work()->sent_bytes(group_.rank());
    return messages_[part].sends ? parts_[part]->work()->sent_bytes(0) : 0;
  }

  MeetingGroup& group_;
  std::string text_;
  void* stream_;
  double start_;
  std::vector<std::shared_ptr<Rendezvous>> parts_;
  struct Message {
    int sender, receiver;
    bool sends;
  };
  std::vector<Message> messages_;  // by part; empty: the parts are collectives
  bool launched_ = false, joined_ = false;
  std::atomic<bool> done_{false};  // the rank looks without the engine's lock
};

MeetingGroup::MeetingGroup(Meeting& meeting, std::unique_ptr<OwnGroup> host, OpenGroup open)
    : meeting_(meeting), host_(std::move(host)), open_(std::move(open)), plans_(host_->planning()) {
  const std::lock_guard guard(engine().lock());
  engine().add(*this);
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
    meeting_.device().abort();
    engine().fail(what + ": " + error.what());
  }
}

std::shared_ptr<WorkState> MeetingGroup::start(const Collective& c) {
  if (c.host_memory) return host_->start(c);
  const std::lock_guard guard(engine().lock());
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
  CommRow& row = plan->row;
  ++row.calls;
  row.bytes += plan->bytes;
  row.predicted_sent_bytes += plan->predicted_sent_bytes;
  const double start = seconds_now();
  const uint64_t record =
      engine().recorder().issue(host_->key_name(), plan->tag_name, plan->signature, sequence, -1, start);
  auto work = std::make_shared<MeetingWork>(*this, row, text, c.stream, record, start);
  const Call call = c.call(rank(), topology());
  work->add(arrive(text, [&] {
    return meeting_.arrive(host_->key(), sequence, call, rank(),
                           {plan->signature, c.in, c.out, c.in_place, c.counts, mark(c.stream)});
  }));
  under_way_.push_back(work);
  poll();
  row.exposed_seconds += seconds_now() - start;
  return work;
}

std::shared_ptr<WorkState> MeetingGroup::transfer(std::span<const P2p> transfers) {
  const std::lock_guard guard(engine().lock());
  engine().check_abort();
  std::shared_ptr<MeetingWork> work;
  const double start = seconds_now();
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
    CommRow& row = engine().table().row(tag, primitive, Algorithm::Auto, "own", size());
    ++row.calls;
    row.bytes += bytes;
    row.predicted_sent_bytes += sends ? static_cast<double>(bytes) : 0.0;
    // Both sides name it a send, so that the two of a matching pair are equal.
    Signature signature{Primitive::Send, transfer.buf.dtype, ReduceOp::Sum, Algorithm::Auto, 0, transfer.buf.count};
    Signature recorded = signature;
    recorded.primitive = primitive;
    const uint64_t record =
        engine().recorder().issue(host_->key_name(), RecordedName(tag), recorded, sequence, transfer.peer, start);
    if (!work) work = std::make_shared<MeetingWork>(*this, row, text, transfer.options.stream, record, start);
    const std::string key = host_->key() + " " + std::to_string(sender) + ">" + std::to_string(receiver) + " lane " +
                            std::to_string(transfer.options.lane);
    work->add(arrive(text,
                     [&] {
                       return meeting_.arrive_message(key, sequence, sends ? 0 : 1,
                                                      {signature, transfer.buf.data, transfer.buf.data, false, nullptr,
                                                       mark(transfer.options.stream)});
                     }),
              sender, receiver, sends);
  }
  under_way_.push_back(work);
  poll();
  return work;
}

bool MeetingGroup::poll() {
  const size_t before = under_way_.size();
  std::erase_if(under_way_, [&](const std::shared_ptr<MeetingWork>& work) {
    try {
      return work->advance();
    } catch (const CommError& error) {
      meeting_.device().abort();
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
