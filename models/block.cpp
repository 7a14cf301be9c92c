// Shapes: R token rows, C channels, H heads and F = 4 C hidden channels of the MLP (H, 3 C and F: this rank's piece).
//
//   forward, attention half                      forward, MLP half
//     normed_1   [R, C]   ln_1(x)                  normed_2   [R, C]  ln_2(middle)
//     qkv        [R, 3C]  c_attn(normed_1)         hidden     [R, F]  c_fc(normed_2)
//     attended   [R, C]   attention(qkv)           activated  [R, F]  gelu(hidden)
//     middle     [R, C]   x + drop(c_proj(..))     y          [R, C]  middle + drop(c_proj(..))
//
// Kept for backward: 8 C + 2 F floats a token row, plus statistics. backward_input walks back and leaves the gradient
// of each linear's and norm's output beside its input, from which backward_weights takes the weights' gradients.
#include "models/block.h"

#include <cmath>

namespace sixfold::models {

using parallel::activation;
using parallel::GradientReady;
using parallel::MicroBatch;
using parallel::Parameter;
using parallel::Saved;

namespace {

/// Slots of Saved. The first group is written by forward, the second by backward_input: gradients of the outputs of
/// norms and linears, each of its output's shape.
enum Slot : size_t {
  kX,            // [R, C], input of ln_1
  kStatistics1,  // [2, R]
  kNormed1,      // [R, C]
  kQkv,          // [R, 3 C]
  kAttended,     // [R, C]
  kLse,          // [B, H, T]
  kMiddle,       // [R, C], input of ln_2
  kStatistics2,  // [2, R]
  kNormed2,      // [R, C]
  kHidden,       // [R, F]
  kActivated,    // [R, F]
  kDNormed1,
  kDQkv,
  kDAttnOut,
  kDNormed2,
  kDHidden,
  kDMlpOut,
  kNumSlots
};

/// Empties the slot: the block is free as soon as the caller is done with it.
Tensor take(Saved& saved, Slot slot) {
  return std::move(saved.tensors[slot]);
}

float residual_std(const GptConfig& config) {
  return 0.02f / std::sqrt(2.0f * static_cast<float>(config.num_layers));
}

}  // namespace

Block::Block(const GptConfig& config, int64_t layer, const parallel::TpGroup& tp)
    : config_(config),
      layer_(layer),
      local_heads_(config.num_heads / tp.size()),
      name_("h." + std::to_string(layer)),
      ln_1_(name_ + ".ln_1", config.dim),
      c_attn_(name_ + ".attn.c_attn", config.dim, 3 * config.dim, 3, 0.02f, tp),
      attn_c_proj_(name_ + ".attn.c_proj", config.dim, config.dim, residual_std(config), tp),
      ln_2_(name_ + ".ln_2", config.dim),
      c_fc_(name_ + ".mlp.c_fc", config.dim, 4 * config.dim, 1, 0.02f, tp),
      mlp_c_proj_(name_ + ".mlp.c_proj", 4 * config.dim, config.dim, residual_std(config), tp) {
  SIXFOLD_CHECK_EQ(config.num_heads % tp.size(), 0, "heads over tensor-parallel ranks");
}

std::vector<Parameter*> Block::parameters() {
  std::vector<Parameter*> all;
  for (const auto& layer : {ln_1_.parameters(), c_attn_.parameters(), attn_c_proj_.parameters(), ln_2_.parameters(),
                            c_fc_.parameters(), mlp_c_proj_.parameters()})
    all.insert(all.end(), layer.begin(), layer.end());
  return all;
}

// ---- Forward -------------------------------------------------------------------------------------------------------

Tensor Block::forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch, Saved& saved) {
  if (batch.training) saved.tensors.assign(kNumSlots, Tensor());
  const Tensor middle = forward_attention(context, x, batch, saved);
  return forward_mlp(context, middle, batch, saved);
}

Tensor Block::forward_attention(kernels::Context& context, const Tensor& x, const MicroBatch& batch,
                                Saved& saved) const {
  const int64_t num_rows = x.dim(0);
  Tensor statistics;
  const Tensor normed = ln_1_.forward(context, x, statistics);
  const Tensor qkv = c_attn_.forward(context, normed);
  const Tensor attended = activation(context, {num_rows, qkv.dim(1) / 3});
  const Tensor lse = activation(context, {batch.num_rows(), local_heads_, batch.seq_len});
  kernels::attention_forward(context, qkv, batch.seq_len, local_heads_, attended, lse);
  const Tensor y = attn_c_proj_.forward(context, attended);
  kernels::dropout_forward(context, dropout_site(config_, DropoutPlace::Attention, layer_, batch), batch.rows(), y, x,
                           y);
  if (batch.training) {
    saved.tensors[kX] = x;
    saved.tensors[kStatistics1] = statistics;
    saved.tensors[kNormed1] = normed;
    saved.tensors[kQkv] = qkv;
    saved.tensors[kAttended] = attended;
    saved.tensors[kLse] = lse;
  }
  return y;
}

Tensor Block::forward_mlp(kernels::Context& context, const Tensor& x, const MicroBatch& batch, Saved& saved) const {
  Tensor statistics;
  const Tensor normed = ln_2_.forward(context, x, statistics);
  const Tensor hidden = c_fc_.forward(context, normed);
  const Tensor activated = activation(context, hidden.shape());
  kernels::gelu_forward(context, hidden, activated);
  const Tensor y = mlp_c_proj_.forward(context, activated);
  kernels::dropout_forward(context, dropout_site(config_, DropoutPlace::Mlp, layer_, batch), batch.rows(), y, x, y);
  if (batch.training) {
    saved.tensors[kMiddle] = x;
    saved.tensors[kStatistics2] = statistics;
    saved.tensors[kNormed2] = normed;
    saved.tensors[kHidden] = hidden;
    saved.tensors[kActivated] = activated;
  }
  return y;
}

// ---- Backward ------------------------------------------------------------------------------------------------------

Tensor Block::backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch, Saved& saved) {
  backward_input_mlp(context, dy, batch, saved);
  backward_input_attention(context, dy, batch, saved);
  return dy;  // by now the gradient of x
}

void Block::backward_input_mlp(kernels::Context& context, const Tensor& dresidual, const MicroBatch& batch,
                               Saved& saved) const {
  auto& t = saved.tensors;
  t[kDMlpOut] = activation(context, dresidual.shape());
  kernels::dropout_backward(context, dropout_site(config_, DropoutPlace::Mlp, layer_, batch), batch.rows(), dresidual,
                            t[kDMlpOut]);
  t[kDHidden] = mlp_c_proj_.backward_input(context, t[kDMlpOut]);
  kernels::gelu_backward(context, t[kDHidden], take(saved, kHidden), t[kDHidden]);
  t[kDNormed2] = c_fc_.backward_input(context, t[kDHidden]);
  ln_2_.backward_input(context, t[kDNormed2], t[kMiddle], t[kStatistics2], dresidual);
}

void Block::backward_input_attention(kernels::Context& context, const Tensor& dresidual, const MicroBatch& batch,
                                     Saved& saved) const {
  auto& t = saved.tensors;
  t[kDAttnOut] = activation(context, dresidual.shape());
  kernels::dropout_backward(context, dropout_site(config_, DropoutPlace::Attention, layer_, batch), batch.rows(),
                            dresidual, t[kDAttnOut]);
  const Tensor dattended = attn_c_proj_.backward_input(context, t[kDAttnOut]);
  t[kDQkv] = activation(context, t[kQkv].shape());
  kernels::attention_backward(context, dattended, take(saved, kQkv), t[kAttended], take(saved, kLse), batch.seq_len,
                              local_heads_, t[kDQkv]);
  t[kDNormed1] = c_attn_.backward_input(context, t[kDQkv]);
  ln_1_.backward_input(context, t[kDNormed1], t[kX], t[kStatistics1], dresidual);
}

void Block::backward_weights(kernels::Context& context, const MicroBatch&, Saved& saved, const GradientReady& ready) {
  mlp_c_proj_.backward_weights(context, take(saved, kActivated), take(saved, kDMlpOut), ready);
  c_fc_.backward_weights(context, take(saved, kNormed2), take(saved, kDHidden), ready);
  ln_2_.backward_weights(context, take(saved, kDNormed2), take(saved, kMiddle), take(saved, kStatistics2), ready);
  attn_c_proj_.backward_weights(context, take(saved, kAttended), take(saved, kDAttnOut), ready);
  c_attn_.backward_weights(context, take(saved, kNormed1), take(saved, kDQkv), ready);
  ln_1_.backward_weights(context, take(saved, kDNormed1), take(saved, kX), take(saved, kStatistics1), ready);
  saved.tensors.clear();
}

}  // namespace sixfold::models
