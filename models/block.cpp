// Shapes: r token rows that this rank has between layers, R in the linears, C channels, C' of them on this rank, F' of
// the F = 4 C hidden channels of the MLP (r = R, C' = C, F' = F where nothing is cut; tp_layers.h, ulysses.h).
//
//   forward, attention half                       forward, MLP half
//     normed_1   [r, C]    ln_1(x)                  normed_2   [r, C]   ln_2(middle)
//     qkv        [R, 3C']  c_attn(normed_1)         hidden     [R, F']  c_fc(normed_2)
//     attended   [R, C']   attention(qkv)           activated  [R, F']  gelu(hidden)
//     middle     [r, C]    x + drop(c_proj(..))     y          [r, C]   middle + drop(c_proj(..))
//
// Kept for backward: 4 r C + R (4 C' + 2 F') floats, plus statistics. backward_input walks back and leaves the gradient
// of each linear's and norm's output beside its input, from which the weights' gradients are taken: in backward_weights
// or, where tensor parallelism overlaps, while the gradient of the half's input is on its way.
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
  kX,            // [r, C], input of ln_1
  kStatistics1,  // [2, r]
  kNormed1,      // [r, C]; [R, C] from backward_input on
  kQkv,          // of the attention, as the next two
  kHeadsOut,
  kLse,
  kAttended,     // [R, C']; kHeadsOut where sequences are whole
  kMiddle,       // [r, C], input of ln_2
  kStatistics2,  // [2, r]
  kNormed2,      // [r, C]; [R, C] from backward_input on
  kHidden,       // [R, F']
  kActivated,    // [R, F']
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

Block::Block(const GptConfig& config, int64_t layer, const parallel::TpGroup& tp, comm::Communicator* sp)
    : config_(config),
      layer_(layer),
      tp_(tp),
      name_("h." + std::to_string(layer)),
      ln_1_(name_ + ".ln_1", config.dim, tp),
      c_attn_(name_ + ".attn.c_attn", config.dim, 3 * config.dim, 3, 0.02f, tp, "tp.attn"),
      attention_(config.num_heads / tp.size(), sp),
      attn_c_proj_(name_ + ".attn.c_proj", config.dim, config.dim, residual_std(config), tp, "tp.attn"),
      ln_2_(name_ + ".ln_2", config.dim, tp),
      c_fc_(name_ + ".mlp.c_fc", config.dim, 4 * config.dim, 1, 0.02f, tp, "tp.mlp"),
      mlp_c_proj_(name_ + ".mlp.c_proj", 4 * config.dim, config.dim, residual_std(config), tp, "tp.mlp") {
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
  const Tensor added = forward_attention(context, x, batch, saved);
  return forward_mlp(context, x, added, batch, saved);
}

Tensor Block::forward_attention(kernels::Context& context, const Tensor& x, const MicroBatch& batch,
                                Saved& saved) const {
  Tensor statistics;
  const Tensor normed = ln_1_.forward(context, x, statistics);
  parallel::UlyssesAttention::Kept kept;
  const Tensor attended = attention_.forward(context, c_attn_.forward(context, normed, batch), batch, kept);
  const Tensor added = attn_c_proj_.forward(context, attended, batch);
  if (batch.training) {
    saved.tensors[kX] = x;
    saved.tensors[kStatistics1] = statistics;
    saved.tensors[kNormed1] = normed;
    saved.tensors[kQkv] = kept.qkv;
    saved.tensors[kHeadsOut] = kept.out;
    saved.tensors[kLse] = kept.lse;
    saved.tensors[kAttended] = attended;
  }
  return added;
}

Tensor Block::forward_mlp(kernels::Context& context, const Tensor& x, const Tensor& added, const MicroBatch& batch,
                          Saved& saved) const {
  Tensor statistics;
  const Tensor normed = ln_2_.forward_residual(context, dropout_site(config_, DropoutPlace::Attention, layer_, batch),
                                               tp_.rows(batch), added, x, statistics);
  const Tensor& middle = added;
  const auto [hidden, activated] = c_fc_.forward_gelu(context, normed, batch);
  const Tensor y = mlp_c_proj_.forward(context, activated, batch);
  kernels::dropout_forward(context, dropout_site(config_, DropoutPlace::Mlp, layer_, batch), tp_.rows(batch), y, middle,
                           y);
  if (batch.training) {
    saved.tensors[kMiddle] = middle;
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
  parallel::Arriving normed = c_fc_.gather_input(context, t[kNormed2], batch);
  const Tensor dout = activation(context, dresidual.shape());
  kernels::dropout_backward(context, dropout_site(config_, DropoutPlace::Mlp, layer_, batch), tp_.rows(batch),
                            dresidual, dout);
  t[kDMlpOut] = mlp_c_proj_.gather_gradient(context, dout, batch);
  t[kDHidden] = mlp_c_proj_.backward_input_gelu(context, t[kDMlpOut], take(saved, kHidden));
  t[kNormed2] = normed.wait();
  parallel::Arriving dnormed = c_fc_.backward_input(context, t[kDHidden], batch);
  if (tp_.overlaps()) add_gradients_mlp(context, saved);
  t[kDNormed2] = dnormed.wait();
  ln_2_.backward_input(context, t[kDNormed2], t[kMiddle], t[kStatistics2], dresidual);
}

void Block::backward_input_attention(kernels::Context& context, const Tensor& dresidual, const MicroBatch& batch,
                                     Saved& saved) const {
  auto& t = saved.tensors;
  parallel::Arriving normed = c_attn_.gather_input(context, t[kNormed1], batch);
  const Tensor dout = activation(context, dresidual.shape());
  kernels::dropout_backward(context, dropout_site(config_, DropoutPlace::Attention, layer_, batch), tp_.rows(batch),
                            dresidual, dout);
  t[kDAttnOut] = attn_c_proj_.gather_gradient(context, dout, batch);
  const Tensor dattended = attn_c_proj_.backward_input(context, t[kDAttnOut]);
  parallel::UlyssesAttention::Kept kept{take(saved, kQkv), take(saved, kHeadsOut), take(saved, kLse)};
  t[kDQkv] = attention_.backward(context, dattended, batch, kept);
  t[kNormed1] = normed.wait();
  parallel::Arriving dnormed = c_attn_.backward_input(context, t[kDQkv], batch);
  if (tp_.overlaps()) add_gradients_attention(context, saved);
  t[kDNormed1] = dnormed.wait();
  ln_1_.backward_input(context, t[kDNormed1], t[kX], t[kStatistics1], dresidual);
}

void Block::add_gradients_mlp(kernels::Context& context, Saved& saved) const {
  mlp_c_proj_.add_gradients(context, take(saved, kActivated), take(saved, kDMlpOut));
  c_fc_.add_gradients(context, take(saved, kNormed2), take(saved, kDHidden));
}

void Block::add_gradients_attention(kernels::Context& context, Saved& saved) const {
  attn_c_proj_.add_gradients(context, take(saved, kAttended), take(saved, kDAttnOut));
  c_attn_.add_gradients(context, take(saved, kNormed1), take(saved, kDQkv));
}

void Block::backward_weights(kernels::Context& context, const MicroBatch&, Saved& saved, const GradientReady& ready) {
  if (!tp_.overlaps()) add_gradients_mlp(context, saved);
  mlp_c_proj_.report_gradients(ready);
  c_fc_.report_gradients(ready);
  ln_2_.backward_weights(context, take(saved, kDNormed2), take(saved, kMiddle), take(saved, kStatistics2), ready);
  if (!tp_.overlaps()) add_gradients_attention(context, saved);
  attn_c_proj_.report_gradients(ready);
  c_attn_.report_gradients(ready);
  ln_1_.backward_weights(context, take(saved, kDNormed1), take(saved, kX), take(saved, kStatistics1), ready);
  saved.tensors.clear();
}

}  // namespace sixfold::models
