#include "runtime/comm/cuda/staged_group.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "runtime/comm/cuda/piece_cuts.h"
#include "runtime/comm/cuda/staged_operations.h"

namespace sixfold::comm {

namespace {
constexpr int kMessageSlots = 2;  // a message is copied on one side only
}

/// One collective, or the messages of one batch.
class StagedWork final : public WorkState {
 public:
  StagedWork(ProgressEngine& progress, void* stream) : WorkState(progress, stream) {}
  void add(std::shared_ptr<StagedOperation> operation, const WatchedOperation& its_watched) {
    if (operations_.empty()) set_watched(its_watched);
    operations_.push_back({std::move(operation), its_watched});
  }
  /// With a stream, what waits for the last copies is the stream, and the rank goes on once they are issued.
  bool done() const override { return done_.load(std::memory_order_acquire); }
  std::string describe() const override {
    std::string text;
    for (const Part& part : operations_) {
      if (!part.finished) text += (text.empty() ? "" : " and ") + part.operation->describe();
    }
    return text;
  }
  std::string diagnose() const override {
    for (const Part& part : operations_) {
      if (part.operation->on_host() != nullptr) return part.operation->on_host()->diagnose();
    }
    return "this rank's GPU is at work, or its stream has not come to it";
  }
  std::vector<int> awaited_ranks() const override {
    std::vector<int> ranks;
    for (const Part& part : operations_) {
      if (part.operation->on_host() == nullptr) continue;
      const std::vector<int> more = part.operation->on_host()->awaited_ranks();
      ranks.insert(ranks.end(), more.begin(), more.end());
    }
    return ranks;
  }
  /// True when all is done, and the group can let go of it.
  bool advance() {
    bool issued = true, all = true;
    for (Part& part : operations_) {
      const bool ends = !part.finished && part.operation->done();
      if (part.watched.started_s == 0 && (ends || part.operation->begun())) {
        engine().watch().start(part.watched, seconds_now());
      }
      if (ends) {
        part.finished = true;
        // Its parts have said what they sent. When ranks came to it is not known: pieces hide it.
        engine().watch().finish(part.watched, seconds_now(), kNothingSent, 0, false);
      }
      issued &= part.operation->issued();
      all &= part.finished;
    }
    if (all || (stream() != nullptr && issued)) done_.store(true, std::memory_order_release);
    return all;
  }

 private:
  void order_before(void* stream) override {
    for (const Part& part : operations_) {
      if (part.operation->last_copy()) part.operation->last_copy()->order_before(stream);
    }
  }
  struct Part {
    std::shared_ptr<StagedOperation> operation;
    WatchedOperation watched;
    bool finished = false;
  };

  std::vector<Part> operations_;
  std::atomic<bool> done_{false};  // the rank looks without the engine's lock
};

StagedGroup::StagedGroup(std::unique_ptr<StagingDevice> device, std::unique_ptr<OwnGroup> host, OpenGroup open)
    : device_(std::move(device)),
      host_(std::move(host)),
      line_(make_line(device_->shape().num_slots, 2 * piece_side_bytes(size(), device_->shape().piece_bytes))),
      parts_(host_->beside("staged")),
      open_(std::move(open)),
      plans_(host_->planning()) {
  const std::lock_guard guard(engine().lock());
  engine().add(*this);
  watched_ = host_->watch_device();
}

StagedGroup::~StagedGroup() {
  const bool failing = std::uncaught_exceptions() > 0;  // as OwnGroup
  engine().close(*this, host_->key(), !failing);
}

std::unique_ptr<StagedLine> StagedGroup::make_line(int num_slots, size_t slot_bytes) {
  return std::make_unique<StagedLine>(*device_, host_->context().memory, num_slots, slot_bytes,
                                      [this](const std::string& reason) { engine().fail(reason); });
}

namespace {

/// Started on the host; outside of the engine's lock.
std::shared_ptr<const LargestCount> find_largest(const Collective& c, OwnGroup& host) {
  const auto largest = std::make_shared<LargestCount>();
  largest->value = static_cast<int64_t>(c.count);
  Collective all;
  all.primitive = Primitive::AllReduce;
  all.in = all.out = &largest->value;
  all.in_place = true;
  all.count = 1;
  all.dtype = DType::I64;
  all.op = ReduceOp::Max;
  const std::string tag = std::string(c.tag) + ".largest";
  all.tag = tag;
  all.keeps = largest;
  largest->found = host.start(all);
  return largest;
}

}  // namespace

std::shared_ptr<WorkState> StagedGroup::start(const Collective& c) {
  if (c.host_memory) return host_->start(c);
  const double start = seconds_now();
  const bool largest_unknown = c.counts && c.primitive == Primitive::AllToAll;
  const std::shared_ptr<const LargestCount> largest = largest_unknown ? find_largest(c, *host_) : nullptr;
  const std::lock_guard guard(engine().lock());
  OperationWatch::Standstill still(engine().watch(), largest ? seconds_now() : start);
  engine().check_abort();
  const size_t piece_bytes = device_->shape().piece_bytes;
  // Chosen for what runs on the host, a piece.
  Collective chosen = c;
  if (!c.counts) chosen.count = std::min(c.count, piece_step(c.primitive, size(), dtype_bytes(c.dtype), piece_bytes));
  chosen.algorithm = plans_.plan_for(chosen)->signature.algorithm;
  chosen.count = c.count;
  const std::shared_ptr<const GroupPlan> plan = plans_.plan_for(chosen);
  const uint64_t sequence = next_sequence_++;
  const std::string text = std::string(primitive_name(c.primitive)) + " #" + std::to_string(sequence) + " (" +
                           plan->tag + ") of group " + host_->key();
  const WatchedOperation watched = engine().watch().issue(
      plan->row, {watched_, plan->tag_name, plan->signature, sequence, -1, -1, plan->bytes, 0}, start);
  auto operation = std::make_shared<StagedCollective>(*parts_, chosen, plan->signature, watched, piece_bytes,
                                                      mark(c.stream), largest, text);
  auto work = std::make_shared<StagedWork>(engine(), c.stream);
  work->add(operation, watched);
  line_->push(std::move(operation));
  under_way_.push_back(work);
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

StagedGroup::Lane& StagedGroup::lane(const P2p& transfer) {
  Lane& lane = lanes_[{transfer.kind, transfer.peer, transfer.options.lane}];
  if (!lane.line) lane.line = make_line(kMessageSlots, device_->shape().piece_bytes);
  return lane;
}

std::shared_ptr<WorkState> StagedGroup::transfer(std::span<const P2p> transfers) {
  const double start = seconds_now();
  const std::lock_guard guard(engine().lock());
  OperationWatch::Standstill still(engine().watch(), start);
  engine().check_abort();
  std::shared_ptr<StagedWork> work;
  for (const P2p& transfer : transfers) {
    const bool sends = transfer.kind == P2p::Kind::Send;
    const Primitive primitive = sends ? Primitive::Send : Primitive::Recv;
    const std::string& tag = transfer.options.tag;
    PhasedRow& row = engine().table().row(tag, primitive, Algorithm::Auto, "own", size());
    Lane& own_lane = lane(transfer);
    const uint64_t sequence = own_lane.next_sequence++;
    const std::string text = std::string(sends ? "send to" : "recv from") + " rank " + std::to_string(transfer.peer) +
                             " #" + std::to_string(sequence) + " (" + tag + ") of group " + host_->key();
    const Signature signature{primitive, transfer.buf.dtype, ReduceOp::Sum, Algorithm::Auto, 0, transfer.buf.count};
    const WatchedOperation watched =
        engine().watch().issue(row,
                               {watched_, RecordedName(tag), signature, sequence, transfer.peer, transfer.options.lane,
                                transfer.buf.count * dtype_bytes(transfer.buf.dtype), 0},
                               start);
    if (!work) work = std::make_shared<StagedWork>(engine(), transfer.options.stream);
    auto operation = std::make_shared<StagedMessage>(*parts_, transfer, watched, device_->shape().piece_bytes,
                                                     mark(transfer.options.stream), text);
    work->add(operation, watched);
    own_lane.line->push(std::move(operation));
  }
  under_way_.push_back(work);
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

bool StagedGroup::poll() {
  if (under_way_.empty()) return false;
  bool moved = line_->advance();
  for (auto& [key, lane] : lanes_) moved |= lane.line->advance();
  if (moved) parts_->poll();  // what has just been started leaves at once
  std::erase_if(under_way_, [](const std::shared_ptr<StagedWork>& work) { return work->advance(); });
  return moved;
}

std::shared_ptr<WorkState> StagedGroup::outstanding() {
  return under_way_.empty() ? nullptr : under_way_.front();
}

}  // namespace sixfold::comm
