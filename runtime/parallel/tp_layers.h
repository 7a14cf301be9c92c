// Layers that tensor parallelism cuts, as in Megatron-LM: linears by columns or rows, embedding, logits and
// cross-entropy by vocabulary. Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
//
// A layer owns parameters and knows how they are cut; it keeps nothing of a forward pass. The unit that uses it passes
// the forward's tensors in again at backward. Tensors are f32; R is the number of token rows of a micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/comm/communicator.h"
#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

/// The ranks that a layer is cut over. The Communicator must outlive the layers.
class TpGroup {
 public:
  /// One rank: nothing is cut.
  TpGroup() = default;
  /// Throws ConfigError for more than one rank: the layers have no communication yet. Null is a group of one.
  explicit TpGroup(comm::Communicator* group);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// This rank's piece where `dim` is cut (`parts` as in ShardSpec).
  ShardSpec cut(int dim, int parts = 1) const { return {dim, parts, rank_, size_}; }

 private:
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

/// What both linears share: weight [in, out] (GPT-2's Conv1D layout), bias [out], and the work on this rank's piece.
class Linear {
 public:
  Linear(const Linear&) = delete;  // parameters are handed out by pointer
  Linear& operator=(const Linear&) = delete;

  /// y [R, out] = x [R, in] weight + bias.
  Tensor forward(kernels::Context& context, const Tensor& x) const;
  /// dx [R, in] = dy [R, out] weight^T.
  Tensor backward_input(kernels::Context& context, const Tensor& dy) const;
  /// Adds to both gradients, then reports bias and weight as ready; leaves out what is frozen.
  void backward_weights(kernels::Context& context, const Tensor& x, const Tensor& dy, const GradientReady& ready);

  std::vector<Parameter*> parameters() { return {&weight_, &bias_}; }

 protected:
  Linear(const std::string& name, int64_t in, int64_t out, float std, ShardSpec weight_shard, ShardSpec bias_shard);

 private:
  Parameter weight_, bias_;
};

/// Cut by output columns: x is whole on every rank, y holds this rank's columns. `parts` > 1: the columns are that many
/// matrices side by side (q, k, v), and each is cut. In backward the ranks' dx add up.
class ColumnParallelLinear : public Linear {
 public:
  ColumnParallelLinear(const std::string& name, int64_t in, int64_t out, int parts, float std, const TpGroup& tp);
};

/// Cut by input rows: x holds this rank's columns, as a ColumnParallelLinear left them. In forward the ranks' y add up,
/// and the bias, which every rank holds whole, is added once.
class RowParallelLinear : public Linear {
 public:
  RowParallelLinear(const std::string& name, int64_t in, int64_t out, float std, const TpGroup& tp);
};

/// The token table weight [vocab rows, C], cut by rows.
class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(const std::string& name, int64_t vocab_rows, int64_t dim, float std, const TpGroup& tp);
  VocabParallelEmbedding(const VocabParallelEmbedding&) = delete;
  VocabParallelEmbedding& operator=(const VocabParallelEmbedding&) = delete;

  /// y [R, C]: the row of each token; tokens i32 [R].
  Tensor forward(kernels::Context& context, const Tensor& tokens) const;
  /// Adds to the gradient, unless frozen. The caller reports the weight as ready: it may be tied.
  void backward_weights(kernels::Context& context, const Tensor& tokens, const Tensor& dy) const;

  Parameter& weight() { return weight_; }

 private:
  Parameter weight_;
};

/// Logits by a tied token table, and their cross-entropy. Each rank has the logits of its own rows of the table; only
/// two numbers a token row cross ranks, the maximum and the sum of exponentials (with the target's logit beside it).
class VocabParallelLogits {
 public:
  /// What the loss leaves for its backward.
  struct Statistics {
    Tensor row_max;  // [R]
    Tensor sums;     // [R, 2], see kernels::cross_entropy_sum
  };

  /// `weight` belongs to a VocabParallelEmbedding that outlives this. Its rows from `vocab_size` on are padding: they
  /// have no probability and no gradient.
  VocabParallelLogits(Parameter& weight, int64_t vocab_size) : weight_(weight), vocab_size_(vocab_size) {}

  int64_t vocab_size() const { return vocab_size_; }
  Parameter& weight() { return weight_; }
  /// logits [R, V] = x [R, C] weight^T, V rows of the table on this rank.
  Tensor forward(kernels::Context& context, const Tensor& x) const;
  /// The sum of the losses of the valid targets; targets i32 [R], < 0: masked.
  double loss(kernels::Context& context, const Tensor& logits, const Tensor& targets, Statistics& statistics) const;
  /// Turns the logits into their gradient, in place, for a loss that counts each valid target `scale` times.
  void loss_backward(kernels::Context& context, const Tensor& targets, const Statistics& statistics, float scale,
                     const Tensor& logits) const;
  /// dx [R, C] = dlogits weight. In backward the ranks' dx add up.
  Tensor backward_input(kernels::Context& context, const Tensor& dlogits) const;
  /// Adds to the gradient of the tied table, unless frozen; its owner reports it as ready.
  void backward_weights(kernels::Context& context, const Tensor& x, const Tensor& dlogits) const;

 private:
  Parameter& weight_;
  int64_t vocab_size_;
};

}  // namespace sixfold::parallel
