// Layers that tensor parallelism cuts, as in Megatron-LM: linears by columns or rows, embedding, logits and
// cross-entropy by vocabulary. Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
//
// A layer owns parameters and knows how they are cut; it keeps nothing of a forward pass. The unit that uses it passes
// the forward's tensors in again at backward. Tensors are f32; R = B T is the number of token rows of a micro-batch, C
// the channels, N the ranks.
//
// Between the layers, where LayerNorm, dropout and the residual are, every rank has all R rows; with Megatron's
// sequence parallelism it has r = R / N of them, its own positions of every sequence (r = R without). What layers
// communicate, by region_ops.h, with S = 4 R C bytes:
//
//                      forward                 backward, of the input     sent by a rank, forward + backward
//   ColumnParallel     -                       AllReduce                  2(N-1)/N S
//   RowParallel        AllReduce               -                          2(N-1)/N S
//   with sequence parallelism
//   ColumnParallel     AllGather               ReduceScatter, AllGather   3(N-1)/N S
//   RowParallel        ReduceScatter           AllGather                  2(N-1)/N S
//
// The last AllGather of ColumnParallel brings back the whole input, of which only own positions were kept, for the
// weight gradient. Per block, that is 8(N-1)/N S, or 10(N-1)/N S with sequence parallelism. Logits travel as
// ColumnParallel does, the embedding as RowParallel.
// Source: Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022, section 4.2.2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/comm/communicator.h"
#include "runtime/parallel/region_ops.h"
#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

struct TpOptions {
  bool sequence_parallel = false;  // between layers, each rank has its own positions
  /// What a linear sends of its input's gradient travels while the weight gradients of its half of a block are worked
  /// out. Units then do that in backward_input, and only report it in backward_weights.
  bool overlap = true;
};

/// The ranks that a layer is cut over. The Communicator must outlive the layers.
class TpGroup {
 public:
  /// One rank: nothing is cut.
  TpGroup() = default;
  /// Null is a group of one.
  explicit TpGroup(comm::Communicator* group, const TpOptions& options = {});

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// nullptr: one rank.
  comm::Communicator* group() const { return group_; }
  /// This rank's piece where `dim` is cut (`parts` as in ShardSpec).
  ShardSpec cut(int dim, int parts = 1) const { return {dim, parts, rank_, size_}; }

  bool sequence_parallel() const { return options_.sequence_parallel; }
  bool overlaps() const { return size_ > 1 && options_.overlap; }
  /// Whether this rank has its own positions of the micro-batch only, between layers.
  bool cuts_positions(const MicroBatch& batch) const { return options_.sequence_parallel && !batch.all_positions; }
  /// The rows that this rank has between layers. Views the micro-batch.
  kernels::TokenRows rows(const MicroBatch& batch) const;
  /// The group's region; "TAG.eval" outside training.
  Region region(kernels::Context& context, const MicroBatch& batch, const char* tag) const;

  /// What a layer's input is to its ranks (CopyToRanks, or GatherPositions), and what its output becomes (SumOverRanks,
  /// or ScatterPositions): forward, then the gradient's way back.
  Arriving enter(const Region& region, const MicroBatch& batch, const Tensor& x) const;
  Arriving enter_backward(const Region& region, const MicroBatch& batch, const Tensor& dx) const;
  Arriving leave(const Region& region, const MicroBatch& batch, const Tensor& y) const;
  Arriving leave_backward(const Region& region, const MicroBatch& batch, const Tensor& dy) const;

 private:
  comm::Communicator* group_ = nullptr;
  TpOptions options_;
  int rank_ = 0;
  int size_ = 1;
};

/// A parameter that no strategy has placed yet.
Parameter make_parameter(std::string name, Shape full_shape, ShardSpec shard, InitRule init, bool decay);

/// The gradient that a backward adds to: undefined, which kernels leave out, for a frozen parameter.
Tensor wanted_gradient(const Parameter& parameter);
/// Calls ready(parameter), unless it is frozen.
void report_ready(Parameter& parameter, const GradientReady& ready);

/// An f32 temporary of a forward or backward pass, content unspecified.
Tensor activation(kernels::Context& context, Shape shape);
/// The same in f32, whatever the context says: for statistics, which activations of 16 bits keep in full.
Tensor f32_activation(kernels::Context& context, Shape shape);

/// What both linears share: weight [in, out] (GPT-2's Conv1D layout), bias [out], and the work on this rank's piece.
/// `tag` names what the layer communicates: "TAG_in", "TAG_out" and, of gradients, "TAG_in.grad", "TAG_out.grad".
class Linear {
 public:
  Linear(const Linear&) = delete;  // parameters are handed out by pointer
  Linear& operator=(const Linear&) = delete;

  /// Adds to both gradients, leaving out what is frozen; x and dy are those of this rank's piece, of all R rows.
  void add_gradients(kernels::Context& context, const Tensor& x, const Tensor& dy) const;
  /// Reports bias and weight as ready.
  void report_gradients(const GradientReady& ready);

  std::vector<Parameter*> parameters() { return {&weight_, &bias_}; }

 protected:
  Linear(const std::string& name, int64_t in, int64_t out, float std, ShardSpec weight_shard, ShardSpec bias_shard,
         const TpGroup& tp, const std::string& tag);

  Tensor multiply(kernels::Context& context, const Tensor& x, const Tensor& bias) const;
  Tensor multiply_transposed(kernels::Context& context, const Tensor& dy) const;
  Region region(kernels::Context& context, const MicroBatch& batch, const char* place) const;

  Parameter weight_, bias_;
  const TpGroup tp_;
  const std::string tag_;
};

/// Cut by output columns: y holds this rank's columns. `parts` > 1: the columns are that many matrices side by side (q,
/// k, v), and each is cut.
class ColumnParallelLinear : public Linear {
 public:
  ColumnParallelLinear(const std::string& name, int64_t in, int64_t out, int parts, float std, const TpGroup& tp,
                       const std::string& tag);

  /// y [R, out / N] = x weight + bias; x [r, in].
  Tensor forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const;
  /// The same with a GELU behind it; hidden is its input, y above.
  struct Activated {
    Tensor hidden, activated;
  };
  Activated forward_gelu(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const;
  /// Starts to bring back the input of all R rows for add_gradients, from what was kept: x [r, in].
  Arriving gather_input(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const;
  /// Starts dx [r, in], from dy [R, out / N]: the sum over the ranks of dy weight^T.
  Arriving backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch) const;
};

/// Cut by input rows: x holds this rank's columns, as a ColumnParallelLinear left them. The bias, which every rank
/// holds whole, is added once, on rank 0.
class RowParallelLinear : public Linear {
 public:
  RowParallelLinear(const std::string& name, int64_t in, int64_t out, float std, const TpGroup& tp,
                    const std::string& tag);

  /// y [r, out] = the sum over the ranks of x weight, and bias; x [R, in / N].
  Tensor forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const;
  /// dy [R, out] of dy [r, out]: what the next and add_gradients take.
  Tensor gather_gradient(kernels::Context& context, const Tensor& dy, const MicroBatch& batch) const;
  /// dx [R, in / N] = dy weight^T.
  Tensor backward_input(kernels::Context& context, const Tensor& dy) const { return multiply_transposed(context, dy); }
  /// Where x is the GELU of `hidden` [R, in / N]: the gradient of that.
  Tensor backward_input_gelu(kernels::Context& context, const Tensor& dy, const Tensor& hidden) const;
};

/// The token table weight [vocab rows, C], cut by rows; those from vocab_size on are padding.
class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(const std::string& name, int64_t vocab_size, int64_t vocab_rows, int64_t dim, float std,
                         const TpGroup& tp);
  VocabParallelEmbedding(const VocabParallelEmbedding&) = delete;
  VocabParallelEmbedding& operator=(const VocabParallelEmbedding&) = delete;

  /// y [r, C]: the row of each token of the micro-batch ("tp.embedding").
  Tensor forward(kernels::Context& context, const MicroBatch& batch) const;
  /// Adds to the gradient, unless frozen; dy [r, C]. The caller reports the weight as ready: it may be tied.
  void backward_weights(kernels::Context& context, const MicroBatch& batch, const Tensor& dy) const;

  Parameter& weight() { return weight_; }

 private:
  Parameter weight_;
  const TpGroup tp_;
};

/// Logits by a tied token table, and their cross-entropy. Each rank has the logits of its own rows of the table; only
/// three numbers a token row cross ranks, the maximum, the sum of exponentials and the target's logit ("tp.loss").
class VocabParallelLogits {
 public:
  /// What the loss leaves for its backward.
  struct Statistics {
    Tensor row_max;  // [R]
    Tensor sums;     // [R, 2], see kernels::cross_entropy_statistics
  };

  /// `weight` belongs to a VocabParallelEmbedding that outlives this. Its rows from `vocab_size` on are padding: they
  /// have no probability and no gradient.
  VocabParallelLogits(Parameter& weight, int64_t vocab_size, const TpGroup& tp)
      : weight_(weight), vocab_size_(vocab_size), tp_(tp) {}

  int64_t vocab_size() const { return vocab_size_; }
  Parameter& weight() { return weight_; }
  /// logits [R, V / N] = x weight^T, for this rank's rows of the table; x [r, C] ("tp.head_in").
  Tensor forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const;
  /// logits [rows, V] of x [rows, C], which every rank has: for sampling ("tp.logits").
  Tensor whole_logits(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const;
  /// f32 [1]: the sum of the losses of the valid targets of the micro-batch, the same on every rank.
  Tensor loss(kernels::Context& context, const Tensor& logits, const MicroBatch& batch, Statistics& statistics) const;
  /// Turns the logits into their gradient, in place, for a loss that counts each valid target scale[1] times.
  void loss_backward(kernels::Context& context, const Tensor& targets, const Statistics& statistics,
                     const Tensor& scale, const Tensor& logits) const;
  /// As ColumnParallelLinear's, for add_gradients: x [R, C] from x [r, C].
  Arriving gather_input(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const;
  /// Starts dx [r, C]: the sum over the ranks of dlogits weight ("tp.head_in.grad").
  Arriving backward_input(kernels::Context& context, const Tensor& dlogits, const MicroBatch& batch) const;
  /// Adds to the gradient of the tied table, unless frozen; its owner reports it as ready. x [R, C].
  void add_gradients(kernels::Context& context, const Tensor& x, const Tensor& dlogits) const;

 private:
  Parameter& weight_;
  int64_t vocab_size_;
  const TpGroup tp_;
};

}  // namespace sixfold::parallel
