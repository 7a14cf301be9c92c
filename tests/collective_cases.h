// One collective, its inputs made from the ranks, its result compared element by element with what arithmetic says.
// Serves thread ranks and mpirun alike.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "runtime/comm/world.h"

namespace sixfold::test {

struct CollectiveCase {
  comm::Primitive primitive = comm::Primitive::AllReduce;
  comm::Algorithm algorithm = comm::Algorithm::Auto;
  size_t count = 0;  // as in comm::Call
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::Sum;
  int root = 0;
  bool in_place = false;
  size_t shift = 0;   // elements by which both buffers are moved off their alignment
  bool whole = true;  // inputs are whole numbers, whose results are exact; else reals of both signs (floats only)
};

std::string to_string(const CollectiveCase& c);

/// Whole: small numbers that differ by rank and element, so that sums, products and extrema over up to 16 ranks are
/// exact in every dtype. Averages are exact up to the rounding of 1 / size. Reals: as the dtype holds them, of very
/// different size; products stay near 1.
double input_value(const CollectiveCase& c, int rank, size_t i);

/// A buffer that peers reach, with canaries on both sides.
template <typename T>
class GuardedBuffer {
 public:
  GuardedBuffer(Memory& memory, size_t count, size_t shift)
      : count_(count),
        begin_(kGuard + shift),
        num_bytes_((count + 2 * kGuard + shift) * sizeof(T)),
        bytes_(memory.allocate(num_bytes_, Category::Communication)) {
    std::memset(bytes_.get(), 0xA5, num_bytes_);
  }
  T* data() { return static_cast<T*>(bytes_.get()) + begin_; }
  bool guards_whole() const {
    const auto* bytes = static_cast<const unsigned char*>(bytes_.get());
    for (size_t i = 0; i < num_bytes_; ++i) {
      const bool inside = i >= begin_ * sizeof(T) && i < (begin_ + count_) * sizeof(T);
      if (!inside && bytes[i] != 0xA5) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t count_, begin_, num_bytes_;
  std::shared_ptr<void> bytes_;
};

/// Starts it, under the tag "test".
comm::Work issue(comm::Communicator& group, const CollectiveCase& c, comm::ConstBuf in, comm::Buf out);

/// What one rank takes part with: its buffers, of which the input is filled. Of every dtype.
template <typename T>
struct CaseBuffers {
  GuardedBuffer<T> in_buffer, out_buffer;
  size_t in_count, out_count;
  T *in, *out;

  CaseBuffers(Memory& memory, const CollectiveCase& c, int rank, int size);
  /// "" or what is wrong, once the operation is done.
  std::string check(const CollectiveCase& c, int rank, int size) const;
};

/// Runs the case on the calling rank (every rank of the group calls it, each with its World's memory); returns "" or
/// what is wrong.
std::string run_case(comm::Communicator& group, Memory& memory, const CollectiveCase& c);

}  // namespace sixfold::test
