// Unit: what strategies, pipelines and the trainer see of a model.
//
// A model is a list of units (embedding, each block, head). Strategies decide where parameters and gradients live; a
// unit only reads `value`, adds to `grad`, and says when a gradient is complete.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/core/tensor.h"
#include "runtime/parallel/shard_spec.h"

namespace sixfold::parallel {

/// How the elements of a parameter start: normal(0, std), keyed by (seed, name, global element index); constant where
/// std == 0.
struct InitRule {
  float std = 0;
  float constant = 0;
};

/// Owned by its unit. `value` and `grad` are views into flat buffers that a strategy owns; both are undefined before a
/// strategy has placed them. A unit finds both whole between the strategy's hooks before and after its work.
struct Parameter {
  std::string name;  // Hugging Face's name, e.g. "h.0.attn.c_attn.weight"
  Shape full_shape;  // before sharding
  ShardSpec shard;   // how this rank's piece is cut from it
  InitRule init;
  bool decay = false;   // weight decay applies (matrices)
  bool frozen = false;  // never updated: units add no gradient and report none; set before a strategy places it
  // Last rows of full_shape that only make it divide: 0 at first, without gradient, in no file and no hash.
  int64_t num_padding_rows = 0;
  // Replicated over tensor-parallel ranks that have different positions (Megatron's sequence parallelism): each adds
  // the gradient of its own, and the sum over the group is meant (tp_gradients.h).
  bool partial = false;
  Tensor value;  // f32 or bf16, local shape; undefined while a strategy keeps it in shards
  Tensor grad;   // f32, local shape; units add, strategies clear; undefined while nobody adds

  Shape local_shape() const { return shard.local_shape(full_shape); }
  /// full_shape without padding: what files hold.
  Shape file_shape() const {
    Shape shape = full_shape;
    if (num_padding_rows > 0) shape[0] -= num_padding_rows;
    return shape;
  }
};

/// The rows that one forward and backward work on. Owned by the trainer, unchanged until its backward has ended.
struct MicroBatch {
  Tensor tokens;                      // i32 [R], R = num_rows * seq_len, on the CPU
  Tensor targets;                     // i32 [R], there, too; < 0: masked, no loss and no gradient
  std::vector<int64_t> sample_index;  // [num_rows]: global sample of each row
  int64_t seq_len = 0;                // positions of a row on this rank
  int64_t seq_offset = 0;             // position of the first
  int64_t step = 0;                   // optimizer step, keys dropout
  bool training = true;               // false: no dropout, nothing is kept for backward
  bool all_positions = false;  // every rank has all positions of its rows, whatever axis cuts sequences: sampling

  int64_t num_rows() const { return static_cast<int64_t>(sample_index.size()); }

  /// Where kernels read tokens, targets and samples: there, or copies on a GPU, which to_device() makes once all of the
  /// above is set.
  void to_device(kernels::Context& context);
  const Tensor& kernel_tokens() const { return on_gpu_.tokens.defined() ? on_gpu_.tokens : tokens; }
  const Tensor& kernel_targets() const { return on_gpu_.targets.defined() ? on_gpu_.targets : targets; }
  kernels::TokenRows rows() const {
    const int64_t* samples = on_gpu_.samples.defined() ? on_gpu_.samples.device_data<int64_t>() : sample_index.data();
    return {samples, num_rows(), seq_len, seq_offset, 0};
  }

 private:
  struct {
    Tensor tokens, targets, samples;
  } on_gpu_;
};

/// What a unit's forward keeps for its backward. Belongs to one micro-batch, so several can be in flight; only the unit
/// knows what the tensors are.
struct Saved {
  std::vector<Tensor> tensors;
};

/// Called at most once per micro-batch for each parameter that is not frozen, as soon as this micro-batch's gradient
/// has been added to it. A parameter for which it is not called counts with what has been added by the end of the
/// backward, which is 0 where its unit was left out.
using GradientReady = std::function<void(Parameter&)>;

class Unit {
 public:
  virtual ~Unit() = default;
  virtual const std::string& name() const = 0;
  /// Parameters that belong to this unit, in a fixed order. A tied weight belongs to the unit that uses it first in
  /// forward (the embedding), so it is complete when that unit's backward ends.
  virtual std::vector<Parameter*> parameters() = 0;
  /// Parameters of other units that this one works with as well: the tied weight, for the head.
  virtual std::vector<Parameter*> borrowed_parameters() { return {}; }

  /// The output for input x. First unit: x is undefined, tokens come from the micro-batch. Last unit: returns f32 [1],
  /// the sum of the losses of the valid targets.
  virtual Tensor forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch, Saved& saved) = 0;
  /// The gradient of the input, from the gradient dy of the output (of the same shape; last unit: what each token's
  /// loss counts, 1 / valid tokens of the global batch). First unit: returns an undefined tensor. May use
  /// dy's storage up.
  virtual Tensor backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch, Saved& saved) = 0;
  /// Adds the gradients of the parameters, calling ready(parameter) for each of its own; releases `saved`. Called after
  /// backward_input of the same micro-batch.
  virtual void backward_weights(kernels::Context& context, const MicroBatch& batch, Saved& saved,
                                const GradientReady& ready) = 0;
};

using UnitList = std::vector<Unit*>;

}  // namespace sixfold::parallel
