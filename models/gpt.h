// GPT-2: learned positions, blocks with the LayerNorm first, tanh GELU, logits tied to the token table.
//
//   unit        parameters (Hugging Face's names; linears are stored [in, out])
//   embedding   wte.weight [vocab, C], wpe.weight [positions, C]
//   h.N         ln_1.weight .bias [C], attn.c_attn.weight [C, 3C] .bias, attn.c_proj.weight [C, C] .bias,
//               ln_2.weight .bias [C], mlp.c_fc.weight [C, 4C] .bias, mlp.c_proj.weight [4C, C] .bias
//   head        ln_f.weight .bias [C]
//
// Initial values: normal with standard deviation 0.02, both c_proj weights 0.02 / sqrt(2 layers); LayerNorm 1 and 0,
// biases 0. Weight decay: everything with two dims. Dropout: after the embeddings and after both c_proj, before the
// residual sum; GPT-2 also drops attention probabilities, which this model does not.
//
// Source: Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/block.h"
#include "models/config.h"
#include "models/ends.h"
#include "runtime/parallel/recompute.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::models {

class Gpt {
 public:
  /// Throws ConfigError for an impossible configuration. Parameters are described, not yet allocated: whoever trains
  /// places `value` and `grad` and calls parallel::initialize.
  explicit Gpt(const GptConfig& config, const parallel::TpGroup& tp = {});

  const GptConfig& config() const { return config_; }
  /// Embedding, blocks (recomputed, where the configuration says so), head; owned by this.
  parallel::UnitList units() const;
  /// Every parameter once, sorted by name: the order of files and hashes.
  std::vector<parallel::Parameter*> parameters_by_name() const;

  /// Elements of all parameters, unsharded, the tied table once.
  int64_t num_parameters() const;
  /// FLOP that training needs for one token of a row of `seq_len`: 6 x parameters without position embeddings + 12 x
  /// layers x C x seq_len (the attention matrices, counted in full although half is masked).
  int64_t flops_per_token(int64_t seq_len) const;

  /// Logits [vocab_size] that follow the last token of the one row in `batch`; targets are not looked at, and
  /// batch.training must be false. `strategy` makes each unit's parameters whole on this rank while it works, so this
  /// is collective as its before_forward is; nullptr: they are whole.
  Tensor next_logits(kernels::Context& context, const parallel::MicroBatch& batch,
                     parallel::Strategy* strategy = nullptr) const;

 private:
  GptConfig config_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<parallel::Recompute>> recomputed_;  // around the blocks, with config.recompute
  std::unique_ptr<Head> head_;
};

}  // namespace sixfold::models
