#include "runtime/parallel/tp_layers.h"

namespace sixfold::parallel {

namespace {

/// First row of the full table that this rank holds.
int64_t vocab_begin(const Parameter& weight) {
  return weight.shard.index * weight.value.dim(0);
}

}  // namespace

TpGroup::TpGroup(comm::Communicator* group) {
  if (group == nullptr || group->size() == 1) return;
  throw ConfigError("--tp " + std::to_string(group->size()) +
                    ": tensor parallelism is not available yet; allowed values: 1");
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
  return Tensor::empty(std::move(shape), DType::F32, context.memory, Category::Activations);
}

// ---- Linear --------------------------------------------------------------------------------------------------------

Linear::Linear(const std::string& name, int64_t in, int64_t out, float std, ShardSpec weight_shard,
               ShardSpec bias_shard)
    : weight_(make_parameter(name + ".weight", {in, out}, weight_shard, {.std = std}, true)),
      bias_(make_parameter(name + ".bias", {out}, bias_shard, {}, false)) {}

Tensor Linear::forward(kernels::Context& context, const Tensor& x) const {
  Tensor y = activation(context, {x.dim(0), weight_.value.dim(1)});
  kernels::linear_forward(context, x, weight_.value, bias_.value, y);
  return y;
}

Tensor Linear::backward_input(kernels::Context& context, const Tensor& dy) const {
  Tensor dx = activation(context, {dy.dim(0), weight_.value.dim(0)});
  kernels::linear_backward_input(context, dy, weight_.value, dx);
  return dx;
}

void Linear::backward_weights(kernels::Context& context, const Tensor& x, const Tensor& dy,
                              const GradientReady& ready) {
  kernels::linear_backward_weight(context, x, dy, wanted_gradient(weight_), wanted_gradient(bias_));
  report_ready(bias_, ready);
  report_ready(weight_, ready);
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, int64_t in, int64_t out, int parts, float std,
                                           const TpGroup& tp)
    : Linear(name, in, out, std, tp.cut(1, parts), tp.cut(0, parts)) {}

RowParallelLinear::RowParallelLinear(const std::string& name, int64_t in, int64_t out, float std, const TpGroup& tp)
    : Linear(name, in, out, std, tp.cut(0), ShardSpec{}) {}

// ---- Embedding -----------------------------------------------------------------------------------------------------

VocabParallelEmbedding::VocabParallelEmbedding(const std::string& name, int64_t vocab_rows, int64_t dim, float std,
                                               const TpGroup& tp)
    : weight_(make_parameter(name + ".weight", {vocab_rows, dim}, tp.cut(0), {.std = std}, true)) {}

Tensor VocabParallelEmbedding::forward(kernels::Context& context, const Tensor& tokens) const {
  Tensor y = activation(context, {tokens.numel(), weight_.value.dim(1)});
  kernels::token_embedding_forward(context, tokens, weight_.value, vocab_begin(weight_), y);
  return y;
}

void VocabParallelEmbedding::backward_weights(kernels::Context& context, const Tensor& tokens, const Tensor& dy) const {
  if (weight_.frozen) return;
  kernels::token_embedding_backward(context, tokens, dy, vocab_begin(weight_), weight_.grad);
}

// ---- Logits and cross-entropy --------------------------------------------------------------------------------------

Tensor VocabParallelLogits::forward(kernels::Context& context, const Tensor& x) const {
  Tensor logits = activation(context, {x.dim(0), weight_.value.dim(0)});
  kernels::matmul(context, false, true, x, weight_.value, logits, /*accumulate=*/false);
  return logits;
}

double VocabParallelLogits::loss(kernels::Context& context, const Tensor& logits, const Tensor& targets,
                                 Statistics& statistics) const {
  const int64_t begin = vocab_begin(weight_);
  statistics.row_max = activation(context, {logits.dim(0)});
  statistics.sums = activation(context, {logits.dim(0), 2});
  kernels::cross_entropy_max(context, logits, begin, vocab_size_, statistics.row_max);
  kernels::cross_entropy_sum(context, logits, targets, begin, vocab_size_, statistics.row_max, statistics.sums);
  return kernels::cross_entropy_loss(context, targets, statistics.sums);
}

void VocabParallelLogits::loss_backward(kernels::Context& context, const Tensor& targets, const Statistics& statistics,
                                        float scale, const Tensor& logits) const {
  kernels::cross_entropy_backward(context, targets, vocab_begin(weight_), vocab_size_, statistics.row_max,
                                  statistics.sums, scale, logits);
}

Tensor VocabParallelLogits::backward_input(kernels::Context& context, const Tensor& dlogits) const {
  Tensor dx = activation(context, {dlogits.dim(0), weight_.value.dim(1)});
  kernels::matmul(context, false, false, dlogits, weight_.value, dx, /*accumulate=*/false);
  return dx;
}

void VocabParallelLogits::backward_weights(kernels::Context& context, const Tensor& x, const Tensor& dlogits) const {
  if (weight_.frozen) return;
  kernels::matmul(context, true, false, dlogits, x, weight_.grad, /*accumulate=*/true);
}

}  // namespace sixfold::parallel
