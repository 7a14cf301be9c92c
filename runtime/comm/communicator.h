// Communicator: the public face of the communication layer. Six primitives, point-to-point, split.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/reduce.h"
#include "runtime/comm/schedule/schedule.h"
#include "runtime/comm/schedule/topology.h"
#include "runtime/core/tensor.h"

namespace sixfold::comm {

/// `count` elements of the caller's memory. A null pointer is allowed with count 0.
struct Buf {
  void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::F32;

  Buf() = default;
  Buf(void* data_, size_t count_, DType dtype_) : data(data_), count(count_), dtype(dtype_) {}
  Buf(const Tensor& tensor)  // NOLINT: a tensor is a buffer
      : data(tensor.raw()), count(static_cast<size_t>(tensor.numel())), dtype(tensor.dtype()) {}
};
struct ConstBuf {
  const void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::F32;

  ConstBuf() = default;
  ConstBuf(const void* data_, size_t count_, DType dtype_) : data(data_), count(count_), dtype(dtype_) {}
  ConstBuf(const Buf& buf) : data(buf.data), count(buf.count), dtype(buf.dtype) {}  // NOLINT
  ConstBuf(const Tensor& tensor) : ConstBuf(Buf(tensor)) {}                         // NOLINT
};

inline constexpr int kNumLanes = 2;  // point-to-point lanes per peer and direction

struct Options {
  Algorithm algorithm = Algorithm::Auto;  // what the World's default is where Auto
  std::string tag = "untagged";           // the name that the communication table groups by, e.g. "dp.grads"
  int lane = 0;                           // point-to-point only: messages of one lane keep their order; < kNumLanes
  /// On a GPU, the stream (a cudaStream_t) that writes the buffers before the call and reads them after Work::wait(),
  /// which then waits for nothing but the launch (where buffers go through the host: until the last copy is issued).
  /// nullptr: the buffers are ready, and wait() returns when all is done.
  void* stream = nullptr;
};

class WorkState;  // host/work.h

/// A handle to an operation under way. Copyable; dropping it never cancels the operation.
class Work {
 public:
  Work() = default;  // done
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  /// Blocks until the operation is done on this rank, driving every outstanding operation of the rank meanwhile. Then
  /// the caller's buffers are free, results may be read, and no peer reads the buffers any more. Throws CommError on a
  /// mismatch, a deadline or another rank's failure; from then on the World is unusable.
  void wait();
  /// Drives once, does not block. True when done. Throws as wait().
  bool test();

 private:
  std::shared_ptr<WorkState> state_;
};

/// One half of a point-to-point transfer, for batch().
struct P2p {
  enum class Kind : uint8_t { Send, Recv } kind = Kind::Send;
  Buf buf;  // read only by Send
  int peer = 0;
  Options options;
};

class GroupBackend;  // group_backend.h

/// One group of ranks. Movable, not copyable; destroyed before its World. One thread per rank uses it.
///
/// Every rank of the group calls the same collectives in the same order, with the same primitive, count, dtype, op and
/// root; a difference is a CommError that names both sides. Operations of one communicator start in the order of issue;
/// those of different communicators are independent. Counts and dtypes are checked at the call (ConfigError), which
/// returns before the data has moved. Input and output may be the same memory as MPI_IN_PLACE allows (see Call), or
/// must not overlap.
class Communicator {
 public:
  explicit Communicator(std::unique_ptr<GroupBackend> backend);
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  int rank() const;
  int size() const;
  /// Rank in the World of rank `r` of this group.
  int world_rank(int r) const;
  /// Which ranks of this group share a node: topology().spans_nodes() says whether it crosses between nodes.
  const Topology& topology() const;
  /// Elements that this rank sends in a collective of `count` (as in Call) of `dtype`, by the formula
  /// (observe/predict.h) of the algorithm that it takes in this group where the call leaves that open.
  double predicted_sent_elements(Primitive primitive, size_t count, DType dtype) const;

  /// `buf` of `root` is copied to `buf` of all.
  Work broadcast(Buf buf, int root, const Options& options = {});
  /// out on `root` = op over all ranks of in; out is not touched elsewhere (and may be empty there).
  Work reduce(ConstBuf in, Buf out, ReduceOp op, int root, const Options& options = {});
  /// out = op over all ranks of in. The same bits on every rank.
  Work all_reduce(ConstBuf in, Buf out, ReduceOp op, const Options& options = {});
  /// out[r * in.count ..] = in of rank r; out.count == size * in.count.
  Work all_gather(ConstBuf in, Buf out, const Options& options = {});
  /// out = op over all ranks of block `rank` of in; in.count == size * out.count.
  Work reduce_scatter(ConstBuf in, Buf out, ReduceOp op, const Options& options = {});
  /// The same with blocks of different size, one after another: block r has counts[r] elements. `counts` is the same on
  /// all ranks.
  Work all_gather(ConstBuf in, Buf out, std::span<const size_t> counts, const Options& options = {});
  Work reduce_scatter(ConstBuf in, Buf out, std::span<const size_t> counts, ReduceOp op, const Options& options = {});
  /// Block p of in goes to block `rank` of out on rank p; in.count == out.count, a multiple of size.
  Work all_to_all(ConstBuf in, Buf out, const Options& options = {});
  /// The same with blocks of different size, one after another: block p of in has send_counts[p] elements, block p of
  /// out recv_counts[p]. What a rank expects must be what the other sends: the ranks exchange their counts first (an
  /// operation of its own, tag "<tag>.counts"), and a difference is a CommError that names both sides. in and out must
  /// not overlap.
  Work all_to_all(ConstBuf in, Buf out, std::span<const size_t> send_counts, std::span<const size_t> recv_counts,
                  const Options& options = {});

  /// Messages between a pair and lane arrive in order, unordered against collectives. Count and dtype of both sides
  /// must agree (CommError). A send is done when the data has left the buffer: a short one at once, one that is longer
  /// than a link holds when it is received. Sending to oneself is allowed.
  Work send(ConstBuf buf, int to, const Options& options = {});
  Work recv(Buf buf, int from, const Options& options = {});
  /// Sends and receives that start together, so that an exchange cannot deadlock. One Work for all.
  Work batch(std::span<const P2p> transfers);

  /// Returns when every rank of the group has called it.
  void barrier();

  /// Collective: ranks with the same `color` (>= 0) form a new group, ordered by (key, rank). A negative color joins
  /// none and gets a group of one. Time-out and links are inherited.
  Communicator split(int color, int key);

 private:
  std::unique_ptr<GroupBackend> backend_;
};

}  // namespace sixfold::comm
