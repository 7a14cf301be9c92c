#include "runtime/comm/mpi/mpi_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>

#include "runtime/comm/mpi/mpi_types.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

/// Requests that complete together, and what is left to do then.
class MpiWork final : public WorkState {
 public:
  MpiWork(ProgressEngine& engine, std::string description) : WorkState(engine), description_(std::move(description)) {}
  /// What it stands for: a collective, or each message of a batch.
  void add(WatchedOperation operation, double start_s) {
    engine().watch().start(operation, start_s);
    if (operations_.empty()) set_watched(operation);
    operations_.push_back(operation);
  }

  bool done() const override { return done_.load(std::memory_order_acquire); }
  std::string describe() const override { return description_; }
  std::string diagnose() const override { return "MPI does not tell which rank is missing"; }

  std::vector<MPI_Request>& requests() { return requests_; }
  void at_end(std::function<void()> finish) { finish_ = std::move(finish); }

  /// True when it has just completed.
  bool advance() {
    int flag = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag, MPI_STATUSES_IGNORE),
              description_);
    if (flag == 0) return false;
    if (finish_) finish_();
    const double end = seconds_now();
    for (const WatchedOperation& operation : operations_) engine().watch().finish(operation, end, {}, 0, false);
    done_.store(true, std::memory_order_release);
    return true;
  }

 private:
  std::string description_;
  std::vector<WatchedOperation> operations_;
  std::vector<MPI_Request> requests_;
  std::function<void()> finish_;
  std::atomic<bool> done_{false};  // the rank looks without the lock
};

namespace {

/// Counts and displacements of blocks of different size, as MPI takes them.
struct MpiBlocks {
  std::vector<int> counts, displacements;

  MpiBlocks() = default;
  MpiBlocks(const Call& call, Buffer buffer) {
    for (int r = 0; r < call.size; ++r) {
      const Range block = block_range(call, buffer, r);
      counts.push_back(mpi_count(block.count()));
      displacements.push_back(mpi_count(block.begin));
    }
  }
};

/// A collective with blocks of different size; `sent` and `received` outlive the request.
void start_with_counts(const Collective& c, const void* in, void* out, MPI_Comm comm, int own_count,
                       const MpiBlocks& sent, const MpiBlocks& received, MPI_Request* request) {
  const MPI_Datatype type = mpi_datatype(c.dtype);
  switch (c.primitive) {
    case Primitive::AllGather:
      return check_mpi(MPI_Iallgatherv(in, own_count, type, out, received.counts.data(), received.displacements.data(),
                                       type, comm, request),
                       "MPI_Iallgatherv");
    case Primitive::ReduceScatter:
      return check_mpi(MPI_Ireduce_scatter(in, out, sent.counts.data(), type, mpi_op(c.dtype, c.op), comm, request),
                       "MPI_Ireduce_scatter");
    case Primitive::AllToAll:
      return check_mpi(MPI_Ialltoallv(in, sent.counts.data(), sent.displacements.data(), type, out,
                                      received.counts.data(), received.displacements.data(), type, comm, request),
                       "MPI_Ialltoallv");
    default:
      SIXFOLD_CHECK(false, "has counts per rank");
  }
}

// MPI's argument for "the input is where the output goes".
const void* input_of(const Collective& c) {
  return c.in_place ? MPI_IN_PLACE : c.in;
}

void start_blocking(const Collective& c, const void* in, void* out, MPI_Comm comm, int count) {
  const MPI_Datatype type = mpi_datatype(c.dtype);
  switch (c.primitive) {
    case Primitive::Broadcast:
      return check_mpi(MPI_Bcast(out, count, type, c.root, comm), "MPI_Bcast");
    case Primitive::Reduce:
      return check_mpi(MPI_Reduce(in, out, count, type, mpi_op(c.dtype, c.op), c.root, comm), "MPI_Reduce");
    case Primitive::AllReduce:
      return check_mpi(MPI_Allreduce(in, out, count, type, mpi_op(c.dtype, c.op), comm), "MPI_Allreduce");
    case Primitive::AllGather:
      return check_mpi(MPI_Allgather(in, count, type, out, count, type, comm), "MPI_Allgather");
    case Primitive::ReduceScatter:
      return check_mpi(MPI_Reduce_scatter_block(in, out, count, type, mpi_op(c.dtype, c.op), comm),
                       "MPI_Reduce_scatter_block");
    case Primitive::AllToAll:
      return check_mpi(MPI_Alltoall(in, count, type, out, count, type, comm), "MPI_Alltoall");
    default:
      SIXFOLD_CHECK(false, "not a collective");
  }
}

void start_nonblocking(const Collective& c, const void* in, void* out, MPI_Comm comm, int count, MPI_Request* request) {
  const MPI_Datatype type = mpi_datatype(c.dtype);
  switch (c.primitive) {
    case Primitive::Broadcast:
      return check_mpi(MPI_Ibcast(out, count, type, c.root, comm, request), "MPI_Ibcast");
    case Primitive::Reduce:
      return check_mpi(MPI_Ireduce(in, out, count, type, mpi_op(c.dtype, c.op), c.root, comm, request), "MPI_Ireduce");
    case Primitive::AllReduce:
      return check_mpi(MPI_Iallreduce(in, out, count, type, mpi_op(c.dtype, c.op), comm, request), "MPI_Iallreduce");
    case Primitive::AllGather:
      return check_mpi(MPI_Iallgather(in, count, type, out, count, type, comm, request), "MPI_Iallgather");
    case Primitive::ReduceScatter:
      return check_mpi(MPI_Ireduce_scatter_block(in, out, count, type, mpi_op(c.dtype, c.op), comm, request),
                       "MPI_Ireduce_scatter_block");
    case Primitive::AllToAll:
      return check_mpi(MPI_Ialltoall(in, count, type, out, count, type, comm, request), "MPI_Ialltoall");
    default:
      SIXFOLD_CHECK(false, "not a collective");
  }
}

// Elements of the result on this rank, which an average scales.
size_t result_count(const Call& call) {
  if (call.primitive == Primitive::Reduce && call.root != call.rank) return 0;
  return output_count(call);
}

}  // namespace

MpiGroup::MpiGroup(ProgressEngine& engine, std::string key, MPI_Comm communicator, const Topology& world, bool blocking)
    : engine_(engine), key_(std::move(key)), communicator_(communicator), world_(world), blocking_(blocking) {
  const std::lock_guard guard(engine_.lock());
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
  int world_rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
  world_ranks_.resize(static_cast<size_t>(size_));
  check_mpi(MPI_Allgather(&world_rank, 1, MPI_INT, world_ranks_.data(), 1, MPI_INT, communicator_), "MPI_Allgather");
  topology_ = world.group(world_ranks_);
  engine_.add(*this);
  watched_ = engine_.watch().add_group(key_, world_ranks_);
}

MpiGroup::~MpiGroup() {
  const bool failing = std::uncaught_exceptions() > 0;  // as OwnGroup
  engine_.close(*this, key_, !failing);
  const std::lock_guard guard(engine_.lock());
  MPI_Comm_free(&communicator_);
}

std::shared_ptr<WorkState> MpiGroup::start(const Collective& c) {
  const double start = seconds_now();
  const std::lock_guard guard(engine_.lock());
  OperationWatch::Standstill still(engine_.watch(), start);
  engine_.check_abort();
  if (c.check) {  // of what an operation before this one has brought
    engine_.finish(*this);
    const std::string problem = c.check();
    if (!problem.empty())
      engine_.fail(std::string(primitive_name(c.primitive)) + " (" + std::string(c.tag) + "): " + problem);
  }
  const size_t element_bytes = dtype_bytes(c.dtype);
  const Call call = c.call(rank_, topology_);
  PhasedRow& row = engine_.table().row(std::string(c.tag), c.primitive, Algorithm::Auto, "mpi", size_);
  const Signature signature{c.primitive, c.dtype, c.op, Algorithm::Auto, c.root, c.count};
  auto work = std::make_shared<MpiWork>(
      engine_, std::string(primitive_name(c.primitive)) + " (" + std::string(c.tag) + ") by MPI");
  work->add(engine_.watch().issue(row,
                                  {watched_, RecordedName(c.tag), signature, next_sequence_++, -1, -1,
                                   operation_bytes(call, element_bytes), 0},
                                  start),
            start);
  const int count = mpi_count(c.count);

  const void* in = input_of(c);
  void* out = c.out;
  const size_t results = result_count(call);
  std::shared_ptr<std::vector<std::byte>> block;
  if (c.primitive == Primitive::ReduceScatter && c.in_place) {
    // MPI would leave the result in block 0 of the input; ours belongs into block `rank`.
    block = std::make_shared<std::vector<std::byte>>(results * element_bytes);
    in = c.in;
    out = block->data();
  }
  if (c.primitive == Primitive::Reduce && rank_ != c.root) in = c.in;
  std::shared_ptr<std::pair<MpiBlocks, MpiBlocks>> blocks;
  if (c.counts) {
    const bool sends = c.primitive != Primitive::AllGather, receives = c.primitive != Primitive::ReduceScatter;
    blocks = std::make_shared<std::pair<MpiBlocks, MpiBlocks>>(
        sends ? MpiBlocks(call, Buffer::Input) : MpiBlocks(), receives ? MpiBlocks(call, Buffer::Output) : MpiBlocks());
  }
  work->at_end([c, block, blocks, results, size = size_] {
    if (block && !block->empty()) std::memcpy(c.out, block->data(), block->size());
    if (c.op != ReduceOp::Avg || results == 0) return;
    kernels::FusedOperands operands;
    operands.local = operands.dst = c.out;
    kernels::fused_reduce(c.dtype, ReduceOp::Avg, operands, results, 1.0f / static_cast<float>(size));
  });
  if (blocks) {
    work->requests().resize(1);
    start_with_counts(c, in, out, communicator_, mpi_count(input_count(call)), blocks->first, blocks->second,
                      work->requests().data());
  } else if (blocking_) {
    start_blocking(c, in, out, communicator_, count);
  } else {
    work->requests().resize(1);
    start_nonblocking(c, in, out, communicator_, count, work->requests().data());
  }
  if (!work->advance()) under_way_.push_back(work);
  still.count(work->watched(), seconds_now());
  return work;
}

WatchedOperation MpiGroup::issue(const P2p& transfer, double now_s) {
  const bool sends = transfer.kind == P2p::Kind::Send;
  const Primitive primitive = sends ? Primitive::Send : Primitive::Recv;
  PhasedRow& row = engine_.table().row(transfer.options.tag, primitive, Algorithm::Auto, "mpi", size_);
  const Signature signature{primitive, transfer.buf.dtype, ReduceOp::Sum, Algorithm::Auto, 0, transfer.buf.count};
  const uint64_t sequence = next_message_[{transfer.kind, transfer.peer, transfer.options.lane}]++;
  return engine_.watch().issue(row,
                               {watched_, RecordedName(transfer.options.tag), signature, sequence, transfer.peer,
                                transfer.options.lane, transfer.buf.count * dtype_bytes(transfer.buf.dtype), 0},
                               now_s);
}

std::shared_ptr<WorkState> MpiGroup::transfer(std::span<const P2p> transfers) {
  const double start = seconds_now();
  const std::lock_guard guard(engine_.lock());
  OperationWatch::Standstill still(engine_.watch(), start);
  engine_.check_abort();
  const P2p& first = transfers.front();
  auto work = std::make_shared<MpiWork>(engine_, std::string(first.kind == P2p::Kind::Send ? "send to" : "recv from") +
                                                     " rank " + std::to_string(first.peer) + " (" + first.options.tag +
                                                     ") by MPI");
  for (const P2p& transfer : transfers) {
    work->add(issue(transfer, start), start);
    const bool sends = transfer.kind == P2p::Kind::Send;
    const int count = mpi_count(transfer.buf.count);
    const MPI_Datatype type = mpi_datatype(transfer.buf.dtype);
    MPI_Request& request = work->requests().emplace_back(MPI_REQUEST_NULL);
    const int code =
        sends
            ? MPI_Isend(transfer.buf.data, count, type, transfer.peer, transfer.options.lane, communicator_, &request)
            : MPI_Irecv(transfer.buf.data, count, type, transfer.peer, transfer.options.lane, communicator_, &request);
    check_mpi(code, work->describe());
  }
  under_way_.push_back(work);
  still.count(work->watched(), seconds_now());
  return work;
}

bool MpiGroup::poll() {
  const size_t before = under_way_.size();
  std::erase_if(under_way_, [](const std::shared_ptr<MpiWork>& work) { return work->advance(); });
  return under_way_.size() < before;
}

std::shared_ptr<WorkState> MpiGroup::outstanding() {
  return under_way_.empty() ? nullptr : under_way_.front();
}

std::unique_ptr<GroupBackend> MpiGroup::split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  {
    const std::lock_guard guard(engine_.lock());
    check_mpi(MPI_Comm_split(communicator_, color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
    if (part == MPI_COMM_NULL) check_mpi(MPI_Comm_dup(MPI_COMM_SELF, &part), "MPI_Comm_dup");
  }
  return std::make_unique<MpiGroup>(engine_, split_name(key_, num_splits_++, color, rank_), part, world_, blocking_);
}

}  // namespace sixfold::comm
