#include "runtime/parallel/tp_layers.h"

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

namespace {

/// First row of the full table that this rank holds.
int64_t vocab_begin(const Parameter& weight) {
  return weight.shard.index * weight.value.dim(0);
}

}  // namespace

TpGroup::TpGroup(comm::Communicator* group, const TpOptions& options) {
  if (group == nullptr || group->size() == 1) return;
  group_ = group;
  options_ = options;
  rank_ = group->rank();
  size_ = group->size();
}

kernels::TokenRows TpGroup::rows(const MicroBatch& batch) const {
  kernels::TokenRows rows = batch.rows();
  if (!cuts_positions(batch)) return rows;
  SIXFOLD_CHECK_EQ(rows.seq_len % size_, 0, "positions over tensor-parallel ranks");
  rows.seq_len /= size_;
  rows.seq_offset += rank_ * rows.seq_len;
  return rows;
}

Region TpGroup::region(kernels::Context& context, const MicroBatch& batch, const char* tag) const {
  return {context, group_, batch.training ? tag : std::string(tag) + ".eval", batch.num_rows()};
}

Arriving TpGroup::enter(const Region& region, const MicroBatch& batch, const Tensor& x) const {
  return cuts_positions(batch) ? GatherPositions::forward(region, x) : Arriving(CopyToRanks::forward(region, x));
}
Arriving TpGroup::enter_backward(const Region& region, const MicroBatch& batch, const Tensor& dx) const {
  return cuts_positions(batch) ? GatherPositions::backward(region, dx) : CopyToRanks::backward(region, dx);
}
Arriving TpGroup::leave(const Region& region, const MicroBatch& batch, const Tensor& y) const {
  return cuts_positions(batch) ? ScatterPositions::forward(region, y) : SumOverRanks::forward(region, y);
}
Arriving TpGroup::leave_backward(const Region& region, const MicroBatch& batch, const Tensor& dy) const {
  return cuts_positions(batch) ? ScatterPositions::backward(region, dy) : Arriving(SumOverRanks::backward(region, dy));
}

Parameter make_parameter(std::string name, Shape full_shape, ShardSpec shard, InitRule init, bool decay) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.full_shape = std::move(full_shape);
  parameter.shard = shard;
  parameter.init = init;
  parameter.decay = decay;
  return parameter;
}

Tensor wanted_gradient(const Parameter& parameter) {
  if (parameter.frozen) return {};
  SIXFOLD_CHECK(parameter.grad.defined(), parameter.name + " has no gradient to add to");
  return parameter.grad;
}

void report_ready(Parameter& parameter, const GradientReady& ready) {
  if (!parameter.frozen) ready(parameter);
}

Tensor activation(kernels::Context& context, Shape shape) {
  return Tensor::empty(std::move(shape), context.dtype, context.memory, Category::Activations);
}
Tensor f32_activation(kernels::Context& context, Shape shape) {
  return Tensor::empty(std::move(shape), DType::F32, context.memory, Category::Activations);
}

// ---- Linear --------------------------------------------------------------------------------------------------------

Linear::Linear(const std::string& name, int64_t in, int64_t out, float std, ShardSpec weight_shard,
               ShardSpec bias_shard, const TpGroup& tp, const std::string& tag)
    : weight_(make_parameter(name + ".weight", {in, out}, weight_shard, {.std = std}, true)),
      bias_(make_parameter(name + ".bias", {out}, bias_shard, {}, false)),
      tp_(tp),
      tag_(tag) {}

Tensor Linear::multiply(kernels::Context& context, const Tensor& x, const Tensor& bias) const {
  Tensor y = activation(context, {x.dim(0), weight_.value.dim(1)});
  kernels::linear_forward(context, x, weight_.value, bias, y);
  return y;
}

Tensor Linear::multiply_transposed(kernels::Context& context, const Tensor& dy) const {
  Tensor dx = activation(context, {dy.dim(0), weight_.value.dim(0)});
  kernels::linear_backward_input(context, dy, weight_.value, dx);
  return dx;
}

Region Linear::region(kernels::Context& context, const MicroBatch& batch, const char* place) const {
  return tp_.region(context, batch, (tag_ + place).c_str());
}

void Linear::add_gradients(kernels::Context& context, const Tensor& x, const Tensor& dy) const {
  kernels::linear_backward_weight(context, x, dy, wanted_gradient(weight_), wanted_gradient(bias_));
}

void Linear::report_gradients(const GradientReady& ready) {
  report_ready(bias_, ready);
  report_ready(weight_, ready);
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, int64_t in, int64_t out, int parts, float std,
                                           const TpGroup& tp, const std::string& tag)
    : Linear(name, in, out, std, tp.cut(1, parts), tp.cut(0, parts), tp, tag) {}

Tensor ColumnParallelLinear::forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const {
  return multiply(context, tp_.enter(region(context, batch, "_in"), batch, x).wait(), bias_.value);
}

ColumnParallelLinear::Activated ColumnParallelLinear::forward_gelu(kernels::Context& context, const Tensor& x,
                                                                   const MicroBatch& batch) const {
  const Tensor x_of_all = tp_.enter(region(context, batch, "_in"), batch, x).wait();
  const Shape shape = {x_of_all.dim(0), weight_.value.dim(1)};
  Activated y{activation(context, shape), activation(context, shape)};
  kernels::linear_gelu_forward(context, x_of_all, weight_.value, bias_.value, y.hidden, y.activated);
  return y;
}

Arriving ColumnParallelLinear::gather_input(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const {
  return tp_.enter(tp_.region(context, batch, "tp.regather"), batch, x);
}

Arriving ColumnParallelLinear::backward_input(kernels::Context& context, const Tensor& dy,
                                              const MicroBatch& batch) const {
  return tp_.enter_backward(region(context, batch, "_in.grad"), batch, multiply_transposed(context, dy));
}

RowParallelLinear::RowParallelLinear(const std::string& name, int64_t in, int64_t out, float std, const TpGroup& tp,
                                     const std::string& tag)
    : Linear(name, in, out, std, tp.cut(0), ShardSpec{}, tp, tag) {}

Tensor RowParallelLinear::forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const {
  const Tensor y = multiply(context, x, tp_.rank() == 0 ? bias_.value : Tensor());
  return tp_.leave(region(context, batch, "_out"), batch, y).wait();
}

Tensor RowParallelLinear::gather_gradient(kernels::Context& context, const Tensor& dy, const MicroBatch& batch) const {
  return tp_.leave_backward(region(context, batch, "_out.grad"), batch, dy).wait();
}

Tensor RowParallelLinear::backward_input_gelu(kernels::Context& context, const Tensor& dy, const Tensor& hidden) const {
  Tensor dhidden = activation(context, hidden.shape());
  kernels::linear_gelu_backward_input(context, dy, weight_.value, hidden, dhidden);
  return dhidden;
}

// ---- Embedding -----------------------------------------------------------------------------------------------------

VocabParallelEmbedding::VocabParallelEmbedding(const std::string& name, int64_t vocab_size, int64_t vocab_rows,
                                               int64_t dim, float std, const TpGroup& tp)
    : weight_(make_parameter(name + ".weight", {vocab_rows, dim}, tp.cut(0), {.std = std}, true)), tp_(tp) {
  weight_.num_padding_rows = vocab_rows - vocab_size;
}

Tensor VocabParallelEmbedding::forward(kernels::Context& context, const MicroBatch& batch) const {
  Tensor y = activation(context, {batch.tokens.numel(), weight_.value.dim(1)});
  kernels::token_embedding_forward(context, batch.kernel_tokens(), weight_.value, vocab_begin(weight_), y);
  return tp_.leave(tp_.region(context, batch, "tp.embedding"), batch, y).wait();
}

void VocabParallelEmbedding::backward_weights(kernels::Context& context, const MicroBatch& batch,
                                              const Tensor& dy) const {
  const Tensor dy_of_all = tp_.leave_backward(tp_.region(context, batch, "tp.embedding.grad"), batch, dy).wait();
  if (weight_.frozen) return;
  kernels::token_embedding_backward(context, batch.kernel_tokens(), dy_of_all, vocab_begin(weight_), weight_.grad);
}

// ---- Logits and cross-entropy --------------------------------------------------------------------------------------

Tensor VocabParallelLogits::forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const {
  const Tensor x_of_all = tp_.enter(tp_.region(context, batch, "tp.head_in"), batch, x).wait();
  Tensor logits = activation(context, {x_of_all.dim(0), weight_.value.dim(0)});
  kernels::matmul(context, false, true, x_of_all, weight_.value, logits, /*accumulate=*/false);
  return logits;
}

Tensor VocabParallelLogits::whole_logits(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const {
  SIXFOLD_CHECK(!tp_.cuts_positions(batch), "whole logits are of rows that every rank has");
  return GatherChannels::forward(tp_.region(context, batch, "tp.logits"), forward(context, x, batch)).wait();
}

Tensor VocabParallelLogits::loss(kernels::Context& context, const Tensor& logits, const MicroBatch& batch,
                                 Statistics& statistics) const {
  const int64_t rows = logits.dim(0);
  const Tensor own_max = f32_activation(context, {rows});
  statistics.row_max = own_max;
  statistics.sums = f32_activation(context, {rows, 2});
  kernels::cross_entropy_statistics(context, logits, batch.kernel_targets(), vocab_begin(weight_), vocab_size_, own_max,
                                    statistics.sums);
  // The maximum has no conjugate, since the loss does not depend on it; and gradients take the sums from all ranks.
  const Region region = tp_.region(context, batch, "tp.loss");
  if (region.group != nullptr) {
    const auto over_ranks = [&](const Tensor& x, const Tensor& y, ReduceOp op) {
      region.group->all_reduce(x, y, op, call_options(context, region.tag)).wait();
    };
    statistics.row_max = f32_activation(context, {rows});
    over_ranks(own_max, statistics.row_max, ReduceOp::Max);
    kernels::cross_entropy_rescale(context, own_max, statistics.row_max, statistics.sums);
    over_ranks(statistics.sums, statistics.sums, ReduceOp::Sum);
  }
  Tensor loss = f32_activation(context, {1});
  kernels::cross_entropy_loss(context, batch.kernel_targets(), statistics.row_max, statistics.sums, loss);
  return loss;
}

void VocabParallelLogits::loss_backward(kernels::Context& context, const Tensor& targets, const Statistics& statistics,
                                        const Tensor& scale, const Tensor& logits) const {
  kernels::cross_entropy_backward(context, targets, vocab_begin(weight_), vocab_size_, statistics.row_max,
                                  statistics.sums, scale, logits);
}

Arriving VocabParallelLogits::gather_input(kernels::Context& context, const Tensor& x, const MicroBatch& batch) const {
  return tp_.enter(tp_.region(context, batch, "tp.regather"), batch, x);
}

Arriving VocabParallelLogits::backward_input(kernels::Context& context, const Tensor& dlogits,
                                             const MicroBatch& batch) const {
  Tensor dx = activation(context, {dlogits.dim(0), weight_.value.dim(1)});
  kernels::matmul(context, false, false, dlogits, weight_.value, dx, /*accumulate=*/false);
  return tp_.enter_backward(tp_.region(context, batch, "tp.head_in.grad"), batch, dx);
}

void VocabParallelLogits::add_gradients(kernels::Context& context, const Tensor& x, const Tensor& dlogits) const {
  if (weight_.frozen) return;
  kernels::matmul(context, true, false, dlogits, x, weight_.grad, /*accumulate=*/true);
}

}  // namespace sixfold::parallel
