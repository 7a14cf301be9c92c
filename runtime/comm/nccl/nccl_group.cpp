#include "runtime/comm/nccl/nccl_group.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

namespace sixfold::comm {

class NcclWork final : public WorkState {
 public:
  NcclWork(ProgressEngine& progress, std::string text, void* stream)
      : WorkState(progress, stream), text_(std::move(text)) {}
  /// What it stands for: a collective, or each message of a batch.
  void add(WatchedOperation operation, double start_s) {
    engine().watch().start(operation, start_s);
    if (operations_.empty()) set_watched(operation);
    operations_.push_back(operation);
  }
  void issued(std::unique_ptr<QueueMark> mark) { marks_.push_back(std::move(mark)); }
  /// With a stream, what waits for the operation is the stream.
  bool done() const override { return done_ || stream() != nullptr; }
  std::string describe() const override { return text_; }
  std::string diagnose() const override { return "NCCL does not say which ranks have entered it"; }
  bool advance() {
    if (!std::all_of(marks_.begin(), marks_.end(), [](const auto& mark) { return mark->done(); })) return false;
    const double end = seconds_now();
    for (const WatchedOperation& operation : operations_) engine().watch().finish(operation, end, {}, 0, false);
    done_ = true;
    return true;
  }

 private:
  void order_before(void* stream) override {
    for (const auto& mark : marks_) mark->order_before(stream);
  }

  std::string text_;
  std::vector<WatchedOperation> operations_;
  std::vector<std::unique_ptr<QueueMark>> marks_;
  std::atomic<bool> done_{false};  // the rank looks without the engine's lock
};

NcclGroup::NcclGroup(const NcclSetup& setup, std::unique_ptr<OwnGroup> host, OpenGroup open)
    : setup_(setup), api_(NcclApi::load(setup.library)), host_(std::move(host)), open_(std::move(open)) {
  open_lines();
  const std::lock_guard guard(engine().lock());
  engine().add(*this);
  watched_ = host_->watch_device();
}

void NcclGroup::open_lines() {
  for (int i = 0; i < 1 + kNumLanes; ++i) lines_.push_back(open_line());
}

NcclGroup::Line NcclGroup::open_line() {
  Line line;
  line.queue = setup_.open_queue();
  NcclUniqueId id{};
  if (rank() == 0) api_->check(api_->get_unique_id(&id), "ncclGetUniqueId");
  Collective c;
  c.primitive = Primitive::Broadcast;
  c.in = c.out = &id;
  c.count = sizeof(id);
  c.dtype = DType::U8;
  c.in_place = true;
  c.tag = "nccl.id";
  engine().wait(*host_->start(c));
  api_->check(api_->comm_init_rank(&line.comm, size(), id, rank()), "ncclCommInitRank");
  return line;
}

NcclGroup::~NcclGroup() {
  const bool failing = std::uncaught_exceptions() > 0;  // as OwnGroup
  engine().close(*this, host_->key(), !failing);
  if (failing || engine().abort().is_set()) abandon();
  for (Line& line : lines_) {
    if (line.comm != nullptr) api_->comm_destroy(line.comm);
  }
}

/// ncclCommAbort returns when the kernels of the communicator have ended.
void NcclGroup::abandon() noexcept {
  for (Line& line : lines_) {
    if (line.comm != nullptr) api_->comm_abort(std::exchange(line.comm, nullptr));
  }
}

std::shared_ptr<NcclWork> NcclGroup::finish(std::shared_ptr<NcclWork> work, Line& line) {
  work->issued(line.queue->mark());
  return work;
}

std::shared_ptr<WorkState> NcclGroup::start(const Collective& c) {
  if (c.host_memory) return host_->start(c);
  const double start = seconds_now();
  const std::lock_guard guard(engine().lock());
  OperationWatch::Standstill still(engine().watch(), start);
  engine().check_abort();
  const std::string tag(c.tag);
  const uint64_t sequence = next_sequence_++;
  const std::string text = std::string(primitive_name(c.primitive)) + " #" + std::to_string(sequence) + " (" + tag +
                           ") by NCCL of group " + host_->key();
  if (c.algorithm != Algorithm::Auto) {
    throw ConfigError("algorithm '" + std::string(algorithm_name(c.algorithm)) +
                      "': not with --comm nccl, which has its own (allowed: auto)");
  }
  if (c.primitive == Primitive::AllToAll && c.in_place) {
    throw ConfigError(text + ": in place, which NCCL does not have (allowed: another output)");
  }
  if (c.check) {  // of what an operation of the host group has brought
    engine().finish(*host_);
    const std::string problem = c.check();
    if (!problem.empty()) engine().fail(text + ": " + problem);
  }
  PhasedRow& row = engine().table().row(tag, c.primitive, Algorithm::Auto, "nccl", size());
  const Signature signature{c.primitive, c.dtype, c.op, Algorithm::Auto, c.root, c.count};
  auto work = std::make_shared<NcclWork>(engine(), text, c.stream);
  work->add(engine().watch().issue(row,
                                   {watched_, RecordedName(tag), signature, sequence, -1, -1,
                                    operation_bytes(c.call(rank(), topology()), dtype_bytes(c.dtype)), 0},
                                   start),
            start);
  Line& line = lines_[0];
  if (c.stream != nullptr) line.queue->wait_for(c.stream);
  try {
    issue(c, line);
  } catch (const CommError& error) {
    engine().fail(text + ": " + error.what());
  }
  under_way_.push_back(finish(work, line));
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

namespace {

const std::byte* at(const void* data, size_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + element * dtype_bytes(dtype);
}
std::byte* at(void* data, size_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * dtype_bytes(dtype);
}

}  // namespace

void NcclGroup::issue(const Collective& c, Line& line) const {
  const int dtype = nccl_dtype(c.dtype), op = nccl_op(c.op);
  void* const stream = line.queue->handle();
  const std::string name(primitive_name(c.primitive));
  if (c.counts != nullptr || c.primitive == Primitive::AllToAll) return issue_blocks(c, line);
  switch (c.primitive) {
    case Primitive::Broadcast:
      return api_->check(api_->broadcast(c.in, c.out, c.count, dtype, c.root, line.comm, stream), name);
    case Primitive::Reduce:
      return api_->check(api_->reduce(c.in, c.out, c.count, dtype, op, c.root, line.comm, stream), name);
    case Primitive::AllReduce:
      return api_->check(api_->all_reduce(c.in, c.out, c.count, dtype, op, line.comm, stream), name);
    case Primitive::AllGather:
      return api_->check(api_->all_gather(c.in, c.out, c.count, dtype, line.comm, stream), name);
    default:
      SIXFOLD_CHECK(c.primitive == Primitive::ReduceScatter, "a collective");
      return api_->check(api_->reduce_scatter(c.in, c.out, c.count, dtype, op, line.comm, stream), name);
  }
}

/// What NCCL has no call for: blocks of different size, as a broadcast or a reduction of each; all-to-all as messages.
void NcclGroup::issue_blocks(const Collective& c, Line& line) const {
  const int dtype = nccl_dtype(c.dtype), op = nccl_op(c.op);
  void* const stream = line.queue->handle();
  const Call call = c.call(rank(), topology());
  api_->check(api_->group_start(), "ncclGroupStart");
  for (int peer = 0; peer < size(); ++peer) {
    if (c.primitive == Primitive::AllGather) {
      const Range block = block_range(call, Buffer::Output, peer);
      api_->check(api_->broadcast(peer == rank() ? c.in : nullptr, at(c.out, block.begin, c.dtype), block.count(),
                                  dtype, peer, line.comm, stream),
                  "ncclBroadcast of a block");
    } else if (c.primitive == Primitive::ReduceScatter) {
      const Range block = block_range(call, Buffer::Input, peer);
      api_->check(api_->reduce(at(c.in, block.begin, c.dtype), peer == rank() ? c.out : nullptr, block.count(), dtype,
                               op, peer, line.comm, stream),
                  "ncclReduce of a block");
    } else {
      const Range to = block_range(call, Buffer::Input, peer), from = block_range(call, Buffer::Output, peer);
      api_->check(api_->send(at(c.in, to.begin, c.dtype), to.count(), dtype, peer, line.comm, stream), "ncclSend");
      api_->check(api_->recv(at(c.out, from.begin, c.dtype), from.count(), dtype, peer, line.comm, stream), "ncclRecv");
    }
  }
  api_->check(api_->group_end(), "ncclGroupEnd");
}

WatchedOperation NcclGroup::issue(const P2p& t, double now_s) {
  const Primitive primitive = t.kind == P2p::Kind::Send ? Primitive::Send : Primitive::Recv;
  PhasedRow& row = engine().table().row(t.options.tag, primitive, Algorithm::Auto, "nccl", size());
  const Signature signature{primitive, t.buf.dtype, ReduceOp::Sum, Algorithm::Auto, 0, t.buf.count};
  const uint64_t sequence = next_message_[{t.kind, t.peer, t.options.lane}]++;
  return engine().watch().issue(row,
                                {watched_, RecordedName(t.options.tag), signature, sequence, t.peer, t.options.lane,
                                 t.buf.count * dtype_bytes(t.buf.dtype), 0},
                                now_s);
}

std::shared_ptr<WorkState> NcclGroup::transfer(std::span<const P2p> transfers) {
  const double start = seconds_now();
  const std::lock_guard guard(engine().lock());
  OperationWatch::Standstill still(engine().watch(), start);
  engine().check_abort();
  const P2p& first = transfers[0];
  const std::string& tag = first.options.tag;
  auto work =
      std::make_shared<NcclWork>(engine(),
                                 std::string(first.kind == P2p::Kind::Send ? "send to" : "recv from") + " rank " +
                                     std::to_string(first.peer) + " (" + tag + ") by NCCL of group " + host_->key(),
                                 first.options.stream);
  try {
    for (int lane = 0; lane < kNumLanes; ++lane) {
      Line& line = lines_[static_cast<size_t>(1 + lane)];
      if (std::none_of(transfers.begin(), transfers.end(), [&](const P2p& t) { return t.options.lane == lane; }))
        continue;
      if (transfers[0].options.stream != nullptr) line.queue->wait_for(transfers[0].options.stream);
      api_->check(api_->group_start(), "ncclGroupStart");
      for (const P2p& t : transfers) {
        if (t.options.lane != lane) continue;
        const bool sends = t.kind == P2p::Kind::Send;
        work->add(issue(t, start), start);
        const int dtype = nccl_dtype(t.buf.dtype);
        void* const stream = line.queue->handle();
        api_->check(sends ? api_->send(t.buf.data, t.buf.count, dtype, t.peer, line.comm, stream)
                          : api_->recv(t.buf.data, t.buf.count, dtype, t.peer, line.comm, stream),
                    sends ? "ncclSend" : "ncclRecv");
      }
      api_->check(api_->group_end(), "ncclGroupEnd");
      finish(work, line);
    }
  } catch (const CommError& error) {
    engine().fail("messages (" + tag + ") by NCCL of group " + host_->key() + ": " + error.what());
  }
  under_way_.push_back(work);
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

void NcclGroup::check_async_errors() {
  for (const Line& line : lines_) {
    NcclResult error = 0;
    api_->check(api_->comm_get_async_error(line.comm, &error), "ncclCommGetAsyncError");
    if (error != kNcclInProgress) api_->check(error, "an operation under way");
  }
}

bool NcclGroup::poll() {
  if (under_way_.empty()) return false;
  const size_t before = under_way_.size();
  const std::string text = under_way_.front()->describe();
  try {
    check_async_errors();
    std::erase_if(under_way_, [](const std::shared_ptr<NcclWork>& work) { return work->advance(); });
  } catch (const CommError& error) {
    engine().fail(text + ": " + error.what());
  }
  return under_way_.size() < before;
}

std::shared_ptr<WorkState> NcclGroup::outstanding() {
  return under_way_.empty() ? nullptr : under_way_.front();
}

std::unique_ptr<GroupBackend> NcclGroup::split(int color, int key) {
  return open_(host_->split_own(color, key));
}

}  // namespace sixfold::comm
