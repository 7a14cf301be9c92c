#include "runtime/comm/communicator.h"

#include <algorithm>
#include <numeric>

#include "runtime/comm/group_backend.h"
#include "runtime/comm/host/progress.h"
#include "runtime/comm/observe/predict.h"
#include "runtime/comm/schedule/select.h"

namespace sixfold::comm {

namespace {

[[noreturn]] void refuse(Primitive primitive, const Options& options, const std::string& problem) {
  throw ConfigError(std::string(primitive_name(primitive)) + " (" + options.tag + "): " + problem);
}

void check_pointer(Primitive primitive, const Options& options, const void* data, size_t count, const char* which) {
  if (count > 0 && data == nullptr)
    refuse(primitive, options, std::string(which) + " is null with count " + std::to_string(count));
}

void check_rank(Primitive primitive, const Options& options, int rank, int size, const char* which) {
  if (rank >= 0 && rank < size) return;
  refuse(primitive, options,
         std::string(which) + " " + std::to_string(rank) + ": allowed are 0 to " + std::to_string(size - 1));
}

void check_counts(Primitive primitive, const Options& options, size_t actual, size_t wanted, const char* which) {
  if (actual == wanted) return;
  refuse(primitive, options,
         std::string(which) + " has " + std::to_string(actual) + " elements, needed are " + std::to_string(wanted));
}

void check_reduction(Primitive primitive, const Options& options, DType dtype, ReduceOp op) {
  if (kernels::reduce_supported(dtype, op)) return;
  refuse(primitive, options,
         std::string(reduce_op_name(op)) + " of " + std::string(dtype_name(dtype)) +
             " is not supported: allowed are sum, min, max, prod, and avg of f32, bf16, f16");
}

const void* offset(const void* data, size_t elements, DType dtype) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + elements * dtype_bytes(dtype);
}

Collective collective(Primitive primitive, ConstBuf in, Buf out, size_t count, const Options& options) {
  if (in.dtype != out.dtype) {
    refuse(primitive, options,
           "input is " + std::string(dtype_name(in.dtype)) + ", output " + std::string(dtype_name(out.dtype)));
  }
  check_pointer(primitive, options, in.data, in.count, "input");
  check_pointer(primitive, options, out.data, out.count, "output");
  Collective c;
  c.primitive = primitive;
  c.in = in.data;
  c.out = out.data;
  c.count = count;
  c.dtype = in.dtype;
  c.in_place = in.data == out.data;
  c.algorithm = options.algorithm;
  c.stream = options.stream;
  c.tag = options.tag;
  return c;
}

void check_table(Primitive primitive, const Options& options, std::span<const size_t> counts, int size) {
  if (counts.size() == static_cast<size_t>(size)) return;
  refuse(primitive, options,
         "counts for " + std::to_string(counts.size()) + " ranks, needed are " + std::to_string(size));
}

size_t sum(std::span<const size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

/// AllGather and ReduceScatter with counts per rank: where the block of `rank` begins in the full buffer.
const void* own_block(const void* full, std::span<const size_t> counts, int rank, DType dtype) {
  return offset(full, sum(counts.first(static_cast<size_t>(rank))), dtype);
}

void set_counts(Collective& c, std::vector<size_t> counts) {
  c.count = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  c.counts = std::make_shared<const std::vector<size_t>>(std::move(counts));
}

/// What this rank sends to each, and what each says that it sends here.
struct CountsExchange {
  std::vector<int64_t> sent, announced, expected;

  std::string problem() const {
    for (size_t peer = 0; peer < expected.size(); ++peer) {
      if (announced[peer] == expected[peer]) continue;
      return "rank " + std::to_string(peer) + " of the group sends " + std::to_string(announced[peer]) +
             " elements, this rank expects " + std::to_string(expected[peer]);
    }
    return "";
  }
};

}  // namespace

void Work::wait() {
  if (state_) state_->engine().wait_and_join(*state_);
}

bool Work::test() {
  if (!state_) return true;
  if (!state_->done()) state_->engine().poll_exposed();
  if (!state_->done()) return false;
  wait();
  return true;
}

Communicator::Communicator(std::unique_ptr<GroupBackend> backend) : backend_(std::move(backend)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const {
  return backend_->rank();
}
int Communicator::size() const {
  return backend_->size();
}
const Topology& Communicator::topology() const {
  return backend_->topology();
}

std::string split_name(const std::string& group, int split, int color, int rank) {
  return group + "/" + std::to_string(split) + "." +
         (color < 0 ? "alone" + std::to_string(rank) : std::to_string(color));
}

Algorithm GroupBackend::algorithm_for(const Collective& collective) const {
  return select(collective.primitive, kAnyBytes, size(), false);
}

double Communicator::predicted_sent_elements(Primitive primitive, size_t count, DType dtype) const {
  Collective collective;
  collective.primitive = primitive;
  collective.count = count;
  collective.dtype = dtype;
  return comm::predicted_sent_elements(backend_->algorithm_for(collective), collective.call(rank(), topology()));
}

int Communicator::world_rank(int r) const {
  return backend_->world_rank(r);
}

Work Communicator::broadcast(Buf buf, int root, const Options& options) {
  check_rank(Primitive::Broadcast, options, root, size(), "root");
  Collective c = collective(Primitive::Broadcast, buf, buf, buf.count, options);
  c.root = root;
  return Work(backend_->start(c));
}

Work Communicator::reduce(ConstBuf in, Buf out, ReduceOp op, int root, const Options& options) {
  check_rank(Primitive::Reduce, options, root, size(), "root");
  check_reduction(Primitive::Reduce, options, in.dtype, op);
  if (rank() == root) {
    check_counts(Primitive::Reduce, options, out.count, in.count, "output");
  } else {
    out = {nullptr, 0, in.dtype};
  }
  Collective c = collective(Primitive::Reduce, in, out, in.count, options);
  c.op = op;
  c.root = root;
  return Work(backend_->start(c));
}

Work Communicator::all_reduce(ConstBuf in, Buf out, ReduceOp op, const Options& options) {
  check_reduction(Primitive::AllReduce, options, in.dtype, op);
  check_counts(Primitive::AllReduce, options, out.count, in.count, "output");
  Collective c = collective(Primitive::AllReduce, in, out, in.count, options);
  c.op = op;
  return Work(backend_->start(c));
}

Work Communicator::all_gather(ConstBuf in, Buf out, const Options& options) {
  const size_t n = static_cast<size_t>(size());
  check_counts(Primitive::AllGather, options, out.count, n * in.count, "output");
  Collective c = collective(Primitive::AllGather, in, out, in.count, options);
  c.in_place = in.data == offset(out.data, static_cast<size_t>(rank()) * in.count, out.dtype);
  return Work(backend_->start(c));
}

Work Communicator::reduce_scatter(ConstBuf in, Buf out, ReduceOp op, const Options& options) {
  const size_t n = static_cast<size_t>(size());
  check_reduction(Primitive::ReduceScatter, options, in.dtype, op);
  check_counts(Primitive::ReduceScatter, options, in.count, n * out.count, "input");
  Collective c = collective(Primitive::ReduceScatter, in, out, out.count, options);
  c.op = op;
  c.in_place = out.data == offset(in.data, static_cast<size_t>(rank()) * out.count, in.dtype);
  return Work(backend_->start(c));
}

Work Communicator::all_to_all(ConstBuf in, Buf out, const Options& options) {
  const size_t n = static_cast<size_t>(size());
  check_counts(Primitive::AllToAll, options, out.count, in.count, "output");
  if (in.count % n != 0) {
    refuse(Primitive::AllToAll, options,
           "input has " + std::to_string(in.count) + " elements, needed is a multiple of " + std::to_string(n));
  }
  return Work(backend_->start(collective(Primitive::AllToAll, in, out, in.count / n, options)));
}

Work Communicator::all_gather(ConstBuf in, Buf out, std::span<const size_t> counts, const Options& options) {
  check_table(Primitive::AllGather, options, counts, size());
  check_counts(Primitive::AllGather, options, in.count, counts[static_cast<size_t>(rank())], "input");
  check_counts(Primitive::AllGather, options, out.count, sum(counts), "output");
  Collective c = collective(Primitive::AllGather, in, out, in.count, options);
  c.in_place = in.data == own_block(out.data, counts, rank(), out.dtype);
  set_counts(c, {counts.begin(), counts.end()});
  return Work(backend_->start(c));
}

Work Communicator::reduce_scatter(ConstBuf in, Buf out, std::span<const size_t> counts, ReduceOp op,
                                  const Options& options) {
  check_reduction(Primitive::ReduceScatter, options, in.dtype, op);
  check_table(Primitive::ReduceScatter, options, counts, size());
  check_counts(Primitive::ReduceScatter, options, in.count, sum(counts), "input");
  check_counts(Primitive::ReduceScatter, options, out.count, counts[static_cast<size_t>(rank())], "output");
  Collective c = collective(Primitive::ReduceScatter, in, out, out.count, options);
  c.op = op;
  c.in_place = out.data == own_block(in.data, counts, rank(), in.dtype);
  set_counts(c, {counts.begin(), counts.end()});
  return Work(backend_->start(c));
}

Work Communicator::all_to_all(ConstBuf in, Buf out, std::span<const size_t> send_counts,
                              std::span<const size_t> recv_counts, const Options& options) {
  const size_t n = static_cast<size_t>(size()), r = static_cast<size_t>(rank());
  check_table(Primitive::AllToAll, options, send_counts, size());
  check_table(Primitive::AllToAll, options, recv_counts, size());
  check_counts(Primitive::AllToAll, options, in.count, sum(send_counts), "input");
  check_counts(Primitive::AllToAll, options, out.count, sum(recv_counts), "output");
  if (in.data == out.data && in.data != nullptr) {
    refuse(Primitive::AllToAll, options, "input and output are the same memory, which counts per peer do not allow");
  }
  Collective c = collective(Primitive::AllToAll, in, out, 0, options);
  c.in_place = false;
  std::vector<size_t> table(n * n, 0);  // of which this rank knows its row and its column
  for (size_t peer = 0; peer < n; ++peer) {
    table[peer * n + r] = recv_counts[peer];
    table[r * n + peer] = send_counts[peer];
  }
  set_counts(c, std::move(table));

  const auto exchange = std::make_shared<CountsExchange>();
  exchange->sent.assign(send_counts.begin(), send_counts.end());
  exchange->announced.resize(n);
  exchange->expected.assign(recv_counts.begin(), recv_counts.end());
  Collective counts;
  counts.primitive = Primitive::AllToAll;
  counts.in = exchange->sent.data();
  counts.out = exchange->announced.data();
  counts.count = 1;
  counts.dtype = DType::I64;
  counts.host_memory = true;
  const std::string tag = options.tag + ".counts";
  counts.tag = tag;
  counts.keeps = exchange;  // the call below may refuse, and be gone before this one is done
  backend_->start(counts);
  c.check = [exchange] { return exchange->problem(); };
  return Work(backend_->start(c));
}

Work Communicator::send(ConstBuf buf, int to, const Options& options) {
  // Buf is one type for both directions; a send never writes to it.
  const P2p transfer{P2p::Kind::Send, Buf(const_cast<void*>(buf.data), buf.count, buf.dtype), to, options};
  return batch({&transfer, 1});
}

Work Communicator::recv(Buf buf, int from, const Options& options) {
  const P2p transfer{P2p::Kind::Recv, buf, from, options};
  return batch({&transfer, 1});
}

Work Communicator::batch(std::span<const P2p> transfers) {
  for (const P2p& transfer : transfers) {
    const Primitive primitive = transfer.kind == P2p::Kind::Send ? Primitive::Send : Primitive::Recv;
    check_rank(primitive, transfer.options, transfer.peer, size(), "peer");
    check_rank(primitive, transfer.options, transfer.options.lane, kNumLanes, "lane");
    check_pointer(primitive, transfer.options, transfer.buf.data, transfer.buf.count, "buffer");
  }
  if (transfers.empty()) return Work();
  return Work(backend_->transfer(transfers));
}

void Communicator::barrier() {
  uint8_t token = 0;
  Options options;
  options.tag = "barrier";
  const Buf buf(&token, 1, DType::U8);
  Collective c = collective(Primitive::AllReduce, buf, buf, 1, options);
  c.op = ReduceOp::Max;
  c.host_memory = true;
  Work(backend_->start(c)).wait();
}

Communicator Communicator::split(int color, int key) {
  return Communicator(backend_->split(color, key));
}

}  // namespace sixfold::comm
