#include "models/gpt.h"

#include <algorithm>

namespace sixfold::models {

Gpt::Gpt(const GptConfig& config, const parallel::TpGroup& tp) : config_(config) {
  config.validate();
  embedding_ = std::make_unique<Embedding>(config, tp);
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    blocks_.push_back(std::make_unique<Block>(config, layer, tp));
  for (const auto& block : blocks_) {
    if (config.recompute) recomputed_.push_back(std::make_unique<parallel::Recompute>(*block));
  }
  head_ = std::make_unique<Head>(config, embedding_->token_table());
}

parallel::UnitList Gpt::units() const {
  parallel::UnitList units = {embedding_.get()};
  if (config_.recompute) {
    for (const auto& block : recomputed_) units.push_back(block.get());
  } else {
    for (const auto& block : blocks_) units.push_back(block.get());
  }
  units.push_back(head_.get());
  return units;
}

std::vector<parallel::Parameter*> Gpt::parameters_by_name() const {
  std::vector<parallel::Parameter*> all;
  for (parallel::Unit* unit : units())
    for (parallel::Parameter* parameter : unit->parameters()) all.push_back(parameter);
  std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  return all;
}

int64_t Gpt::num_parameters() const {
  int64_t sum = 0;
  for (const parallel::Parameter* parameter : parameters_by_name()) sum += numel(parameter->full_shape);
  return sum;
}

int64_t Gpt::flops_per_token(int64_t seq_len) const {
  const int64_t without_positions = num_parameters() - config_.seq_len * config_.dim;
  return 6 * without_positions + 12 * config_.num_layers * config_.dim * seq_len;
}

Tensor Gpt::next_logits(kernels::Context& context, const parallel::MicroBatch& batch,
                        parallel::Strategy* strategy) const {
  SIXFOLD_CHECK(!batch.training, "logits come from an evaluation batch");
  SIXFOLD_CHECK_EQ(batch.num_rows(), 1, "rows");
  parallel::Saved nothing;
  Tensor x;
  for (parallel::Unit* unit : units()) {
    if (strategy != nullptr) strategy->before_forward(*unit, 0);
    if (unit == head_.get()) {
      const Tensor last_row = x.slice((x.dim(0) - 1) * x.dim(1), {1, x.dim(1)});
      x = head_->logits(context, last_row).slice(0, {config_.vocab_size});
    } else {
      x = unit->forward(context, x, batch, nothing);
    }
    if (strategy != nullptr) strategy->after_forward(*unit, 0);
  }
  return x;
}

}  // namespace sixfold::models
