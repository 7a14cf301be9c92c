// Ulysses: attention where each rank of a group has some positions of every sequence, for the whole of a block. Around
// attention alone, an AllToAll turns positions into heads and back, so that each rank sees all positions of its heads.
//
//   qkv [R/N, 3 C]  AllToAll  [R, 3 C/N]  attention of H/N heads  [R, C/N]  AllToAll  [R/N, C]
//
// R = B T token rows, N ranks. Forward moves q, k, v and the output, backward the four gradients: 8 tensors of R C / N
// elements, of which a rank sends (N-1)/N. Positions are cut evenly, and H is a multiple of N (mesh.h).
// Source: Jacobs et al., "DeepSpeed Ulysses", 2023, section 3.
#pragma once

#include "runtime/parallel/region_ops.h"
#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

class UlyssesAttention {
 public:
  /// What backward needs, beside the output.
  struct Kept {
    Tensor qkv;  // [R, 3 C/N]
    Tensor out;  // [R, C/N]
    Tensor lse;  // [B, H/N, T]
  };

  /// `num_heads` on this rank before the exchange. nullptr: a group of one, which exchanges nothing. The Communicator
  /// outlives this.
  UlyssesAttention(int64_t num_heads, comm::Communicator* group);

  /// Causal self-attention: [R/N, C] of qkv [R/N, 3 C], where C is this rank's heads' channels ("sp.qkv", "sp.out").
  Tensor forward(kernels::Context& context, const Tensor& qkv, const MicroBatch& batch, Kept& kept) const;
  /// dqkv [R/N, 3 C] of dout [R/N, C] ("sp.out.grad", "sp.qkv.grad"). Uses `kept` up.
  Tensor backward(kernels::Context& context, const Tensor& dout, const MicroBatch& batch, Kept& kept) const;

 private:
  Region region(kernels::Context& context, const MicroBatch& batch, const char* tag) const;

  const int64_t num_heads_;
  comm::Communicator* const group_;
};

}  // namespace sixfold::parallel
