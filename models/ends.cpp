#include "models/ends.h"

namespace sixfold::models {

using parallel::GradientReady;
using parallel::MicroBatch;
using parallel::Saved;

namespace {

/// Kernels take an id that they do not hold for another rank's, so a wrong one has to be found here.
void check_below(const Tensor& ids, int64_t begin, int64_t end, const char* what) {
  const int32_t* data = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    SIXFOLD_CHECK_LE(begin, data[i], std::string(what) + " at row " + std::to_string(i));
    SIXFOLD_CHECK_LT(data[i], end, std::string(what) + " at row " + std::to_string(i));
  }
}

/// Slots of the head's Saved. kLogits turns into its gradient in backward_input, which writes kDNormed.
enum Slot : size_t { kX, kStatistics, kNormed, kLogits, kRowMax, kSums, kDNormed, kNumSlots };

}  // namespace

// ---- Embedding -----------------------------------------------------------------------------------------------------

Embedding::Embedding(const GptConfig& config, const parallel::TpGroup& tp)
    : config_(config),
      tp_(tp),
      wte_("wte", config.vocab_size, config.padded_vocab(), config.dim, 0.02f, tp),
      wpe_(parallel::make_parameter("wpe.weight", {config.seq_len, config.dim}, {}, {.std = 0.02f}, true)) {
  wpe_.partial = tp.sequence_parallel();
}

Tensor Embedding::forward(kernels::Context& context, const Tensor&, const MicroBatch& batch, Saved&) {
  SIXFOLD_CHECK_EQ(batch.tokens.numel(), batch.num_rows() * batch.seq_len, "tokens of the micro-batch");
  SIXFOLD_CHECK_LE(batch.seq_offset + batch.seq_len, config_.seq_len, "positions");
  check_below(batch.tokens, 0, config_.vocab_size, "token");
  Tensor y = wte_.forward(context, batch);
  kernels::position_embedding_forward(context, tp_.rows(batch), wpe_.value, y);
  const auto site = dropout_site(config_, DropoutPlace::Embedding, 0, batch);
  if (site.probability > 0) kernels::dropout_forward(context, site, tp_.rows(batch), y, {}, y);
  return y;
}

Tensor Embedding::backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch, Saved& saved) {
  const auto site = dropout_site(config_, DropoutPlace::Embedding, 0, batch);
  if (site.probability > 0) kernels::dropout_backward(context, site, tp_.rows(batch), dy, dy);
  saved.tensors = {dy};
  return {};
}

void Embedding::backward_weights(kernels::Context& context, const MicroBatch& batch, Saved& saved,
                                 const GradientReady& ready) {
  const Tensor& dy = saved.tensors[0];
  if (!wpe_.frozen) kernels::position_embedding_backward(context, tp_.rows(batch), dy, wpe_.grad);
  parallel::report_ready(wpe_, ready);
  wte_.backward_weights(context, batch, dy);
  parallel::report_ready(wte_.weight(), ready);
  saved.tensors.clear();
}

// ---- Head ----------------------------------------------------------------------------------------------------------

Head::Head(const GptConfig& config, parallel::Parameter& token_table, const parallel::TpGroup& tp)
    : tp_(tp), ln_f_("ln_f", config.dim, tp), lm_head_(token_table, config.vocab_size, tp) {}

Tensor Head::forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch, Saved& saved) {
  check_below(batch.targets, INT32_MIN, lm_head_.vocab_size(), "target");
  Tensor statistics;
  const Tensor normed = ln_f_.forward(context, x, statistics);
  const Tensor logits = lm_head_.forward(context, normed, batch);
  parallel::VocabParallelLogits::Statistics softmax;
  Tensor loss = lm_head_.loss(context, logits, batch, softmax);
  if (batch.training) saved.tensors = {x, statistics, normed, logits, softmax.row_max, softmax.sums, {}};
  return loss;
}

Tensor Head::backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch, Saved& saved) {
  auto& t = saved.tensors;
  SIXFOLD_CHECK_EQ(t.size(), size_t{kNumSlots}, "head's backward without a training forward");
  parallel::Arriving normed = lm_head_.gather_input(context, t[kNormed], batch);
  lm_head_.loss_backward(context, batch.kernel_targets(), {t[kRowMax], t[kSums]}, dy, t[kLogits]);
  t[kNormed] = normed.wait();
  parallel::Arriving dnormed = lm_head_.backward_input(context, t[kLogits], batch);
  if (tp_.overlaps()) add_gradients(context, saved);
  t[kDNormed] = dnormed.wait();
  Tensor dx = kernels::zeros(context, t[kX].shape(), context.dtype, Category::Activations);
  ln_f_.backward_input(context, t[kDNormed], t[kX], t[kStatistics], dx);
  return dx;
}

void Head::add_gradients(kernels::Context& context, Saved& saved) const {
  const Tensor normed = std::move(saved.tensors[kNormed]), dlogits = std::move(saved.tensors[kLogits]);
  lm_head_.add_gradients(context, normed, dlogits);
}

void Head::backward_weights(kernels::Context& context, const MicroBatch&, Saved& saved, const GradientReady& ready) {
  if (!tp_.overlaps()) add_gradients(context, saved);
  const auto& t = saved.tensors;
  ln_f_.backward_weights(context, t[kDNormed], t[kX], t[kStatistics], ready);
  saved.tensors.clear();
}

Tensor Head::logits(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const {
  Tensor statistics;
  return lm_head_.whole_logits(context, ln_f_.forward(context, x, statistics), batch);
}

}  // namespace sixfold::models
