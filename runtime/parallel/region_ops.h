// Region operations: what tensor and sequence parallelism communicate inside a model. Each is a linear map from what
// the ranks of a group have before to what they have after, and comes with its conjugate: the map that takes the
// gradient of the one back to the gradient of the other.
//
// N ranks; tensors are f32 [R, C] of R = B T token rows (B sequences of T positions). A rank has
//
//   whole        the same [R, C] as every other; each rank's gradient of it is whole, too
//   copies       the same [R, C], used for something else on every rank: their gradients are parts of a sum
//   parts        an [R, C] whose sum over the ranks is meant
//   positions    [R / N, C]: positions rank T/N .. of every sequence
//   channels     [R, C / N]: channels rank C/N ..; of q, k and v alike where three tensors lie side by side
//
//   pair              forward                                 backward
//   CopyToRanks       identity        whole -> copies         AllReduce       parts -> whole
//   SumOverRanks      AllReduce       parts -> whole          identity        whole -> copies
//   GatherChannels    AllGather       channels -> whole       slice           whole -> channels
//   SliceChannels     slice           whole -> channels       AllGather       channels -> whole
//   GatherPositions   AllGather       positions -> copies     ReduceScatter   parts -> positions
//   ScatterPositions  ReduceScatter   parts -> positions      AllGather       positions -> copies
//   ToChannels        AllToAll        positions -> channels   AllToAll        channels -> positions
//   ToPositions       AllToAll        channels -> positions   AllToAll        positions -> channels
//
// With S = 4 R C bytes a rank sends 2(N-1)/N S in an AllReduce, (N-1)/N S in an AllGather or a ReduceScatter, and
// (N-1)/N^2 S in an AllToAll. On a group of one, all are the identity and communicate nothing.
//
// Source: Shoeybi et al., "Megatron-LM", 2019, section 3 (f and g); Korthikanti et al., "Reducing activation
// recomputation in large transformer models", 2022, section 4.2.2 (g and its conjugate along the sequence); Jacobs et
// al., "DeepSpeed Ulysses", 2023, section 3 (AllToAll).
#pragma once

#include <cstdint>
#include <string>

#include "kernels/kernels.h"
#include "runtime/comm/communicator.h"

namespace sixfold::parallel {

/// Where an operation takes place. All ranks of the group call it alike.
struct Region {
  kernels::Context& context;            // of the caller, for results and temporaries
  comm::Communicator* group = nullptr;  // nullptr: a group of one
  std::string tag;                      // in the communication table
  int64_t num_sequences = 1;            // B; counts where positions are cut

  int size() const { return group == nullptr ? 1 : group->size(); }
};

/// A result on its way. Whoever starts an operation may compute before it waits; the argument must stay as it is until
/// then, but need not be kept alive.
class Arriving {
 public:
  /// Already there.
  explicit Arriving(Tensor value) : value_(std::move(value)) {}
  /// `received` holds the result when `work` is done; where `ordered` is defined, [a, b, n], it is put there with its
  /// first two dims swapped, and `value` is a view of it. `sent` is kept until then.
  Arriving(kernels::Context& context, comm::Work work, Tensor sent, Tensor received, Tensor ordered, Tensor value);

  /// The result. Called once. Throws CommError.
  Tensor wait();

 private:
  kernels::Context* context_ = nullptr;
  comm::Work work_;
  Tensor sent_, received_, ordered_, value_;
};

// Results of an AllReduce are in x itself; others in new tensors. Dims that do not divide are a CheckError.

struct CopyToRanks {
  static Tensor forward(const Region&, const Tensor& x) { return x; }
  static Arriving backward(const Region& region, const Tensor& dy);
};
struct SumOverRanks {
  static Arriving forward(const Region& region, const Tensor& x);
  static Tensor backward(const Region&, const Tensor& dy) { return dy; }
};
struct GatherChannels {
  static Arriving forward(const Region& region, const Tensor& x);
  static Tensor backward(const Region& region, const Tensor& dy);
};
struct SliceChannels {
  static Tensor forward(const Region& region, const Tensor& x);
  static Arriving backward(const Region& region, const Tensor& dy);
};
struct GatherPositions {
  static Arriving forward(const Region& region, const Tensor& x);
  static Arriving backward(const Region& region, const Tensor& dy);
};
struct ScatterPositions {
  static Arriving forward(const Region& region, const Tensor& x);
  static Arriving backward(const Region& region, const Tensor& dy);
};
/// `num_tensors` tensors of equal width side by side, each cut by channels: 3 for q, k and v.
struct ToChannels {
  static Arriving forward(const Region& region, const Tensor& x, int64_t num_tensors);
  static Arriving backward(const Region& region, const Tensor& dy, int64_t num_tensors);
};
struct ToPositions {
  static Arriving forward(const Region& region, const Tensor& x, int64_t num_tensors);
  static Arriving backward(const Region& region, const Tensor& dy, int64_t num_tensors);
};

}  // namespace sixfold::parallel
