// The operation under test: its buffers, what a trainer does around it, and what its result must be.
#pragma once

#include "examples/collective_perf/options.h"
#include "runtime/comm/world.h"
#include "runtime/core/device.h"

namespace sixfold::collective_perf {

/// Memory of one rank, elements of options.dtype, that the operations of all sizes take turns in: fresh memory for each
/// would cost the time of touching it, and a World keeps what it has once handed out.
struct Buffers {
  Buffers(const PerfOptions& options, comm::World& world);
  std::unique_ptr<Memory> device_memory;  // on a GPU; outlives the tensors
  Tensor in, out;
};

class Operation {
 public:
  /// `bytes` of the full buffer, rounded down to whole elements (and blocks). in_place: input and output are the same
  /// memory, as MPI_IN_PLACE would have it. Every rank makes its own.
  Operation(const PerfOptions& options, comm::World& world, const Buffers& buffers, size_t bytes, bool in_place);

  /// Whether the primitive has the form: broadcast knows only the one in place, send_recv only the other.
  static bool exists(comm::Primitive primitive, bool in_place) {
    return primitive != (in_place ? comm::Primitive::Send : comm::Primitive::Broadcast);
  }

  uint64_t bytes() const { return comm::operation_bytes(primitive_, count_, size_, dtype_bytes(dtype_)); }
  size_t count() const { return count_; }  // as in comm::Call

  void run(comm::Communicator& group) const;
  /// Writes the whole input, as a backward pass does.
  void write() const;
  /// Reads the whole output, as an optimizer does.
  void read();

  /// Runs once on data whose exact result is known; returns the number of wrong elements on this rank.
  int64_t check(comm::Communicator& group) const;

 private:
  void exchange(comm::Communicator& group) const;
  void poison_output(void* staged) const;
  double input_value(int rank, size_t element) const;
  double expected_value(size_t element) const;

  comm::Primitive primitive_;
  DType dtype_;
  ReduceOp op_;
  int rank_, size_, root_;
  bool on_gpu_;
  comm::Options options_;
  size_t count_ = 0;
  Tensor in_, out_;
  volatile uint64_t zero_ = 0;
  volatile uint64_t sink_ = 0;  // keeps the read from being optimised away
};

}  // namespace sixfold::collective_perf
