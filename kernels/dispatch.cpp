// The operations of kernels.h, handed to the functions of the context's device.
#include "kernels/queue.h"

namespace sixfold::kernels {

namespace {

const KernelTable& of(const Context& context) {
#define SIXFOLD_ENTRY(name) &cpu::name,
  static constexpr KernelTable on_cpu = {SIXFOLD_KERNELS(SIXFOLD_ENTRY)};
#undef SIXFOLD_ENTRY
  return context.queue == nullptr ? on_cpu : context.queue->kernels();
}

}  // namespace

Tensor zeros(const Place& place, Shape shape, DType dtype, Category category) {
  const Tensor t = Tensor::empty(std::move(shape), dtype, place.memory, category);
  Context context = context_of(place);
  zero(context, t);
  return t;
}

Tensor on_host(const Place& place, const Tensor& src) {
  if (place.queue == nullptr) return src;
  const Tensor host = Tensor::of_host(src.shape(), src.dtype());
  place.queue->to_host(host.raw(), src.raw(), src.bytes());
  return host;
}

namespace {
/// Of a tensor on the CPU, as another dtype.
Tensor converted(const Tensor& host, DType dtype) {
  if (host.dtype() == dtype) return host;
  const Tensor result = Tensor::of_host(host.shape(), dtype);
  Memory unused;
  Context on_cpu = context_of(unused);
  convert(on_cpu, host, result);
  return result;
}
}  // namespace

Tensor floats_on_host(const Place& place, const Tensor& src) {
  return converted(on_host(place, src), DType::F32);
}

void from_host(const Place& place, const Tensor& host, const Tensor& dst) {
  if (place.queue == nullptr) return dst.copy_from(host);
  SIXFOLD_CHECK_EQ(host.numel(), dst.numel(), "copy between tensors of different size");
  SIXFOLD_CHECK(host.dtype() == dst.dtype(), "copy between tensors of different dtype");
  place.queue->to_device(dst.raw(), host.raw(), host.bytes());
}

void floats_from_host(const Place& place, const Tensor& host, const Tensor& dst) {
  from_host(place, converted(host, dst.dtype()), dst);
}

void zero(Context& context, const Tensor& t) {
  of(context).zero(context, t);
}
void copy(Context& context, const Tensor& src, const Tensor& dst) {
  of(context).copy(context, src, dst);
}
void matmul(Context& context, bool transpose_a, bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& c,
            bool accumulate) {
  of(context).matmul(context, transpose_a, transpose_b, a, b, c, accumulate);
}
void linear_forward(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
  of(context).linear_forward(context, x, weight, bias, y);
}
void linear_gelu_forward(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& hidden, const Tensor& activated) {
  of(context).linear_gelu_forward(context, x, weight, bias, hidden, activated);
}
void linear_backward_input(Context& context, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  of(context).linear_backward_input(context, dy, weight, dx);
}
void linear_gelu_backward_input(Context& context, const Tensor& dy, const Tensor& weight, const Tensor& hidden,
                                const Tensor& dhidden) {
  of(context).linear_gelu_backward_input(context, dy, weight, hidden, dhidden);
}
void linear_backward_weight(Context& context, const Tensor& x, const Tensor& dy, const Tensor& dweight,
                            const Tensor& dbias) {
  of(context).linear_backward_weight(context, x, dy, dweight, dbias);
}
void layernorm_forward(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps,
                       const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  of(context).layernorm_forward(context, x, gamma, beta, eps, y, mean, rstd);
}
void layernorm_backward_input(Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                              const Tensor& mean, const Tensor& rstd, const Tensor& dx) {
  of(context).layernorm_backward_input(context, dy, x, gamma, mean, rstd, dx);
}
void layernorm_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const Tensor& mean,
                               const Tensor& rstd, const Tensor& dgamma, const Tensor& dbeta) {
  of(context).layernorm_backward_weight(context, dy, x, mean, rstd, dgamma, dbeta);
}
void gelu_forward(Context& context, const Tensor& x, const Tensor& y) {
  of(context).gelu_forward(context, x, y);
}
void gelu_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& dx) {
  of(context).gelu_backward(context, dy, x, dx);
}
void accumulate(Context& context, const Tensor& src, const Tensor& dst) {
  of(context).accumulate(context, src, dst);
}
void swap_dims(Context& context, const Tensor& src, const Tensor& dst) {
  of(context).swap_dims(context, src, dst);
}
void convert(Context& context, const Tensor& src, const Tensor& dst) {
  of(context).convert(context, src, dst);
}
void dropout_forward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& x,
                     const Tensor& residual, const Tensor& y) {
  of(context).dropout_forward(context, site, rows, x, residual, y);
}
void dropout_backward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& dy,
                      const Tensor& dx) {
  of(context).dropout_backward(context, site, rows, dy, dx);
}
void residual_layernorm_forward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& x,
                                const Tensor& residual, const Tensor& gamma, const Tensor& beta, float eps,
                                const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  of(context).residual_layernorm_forward(context, site, rows, x, residual, gamma, beta, eps, sum, y, mean, rstd);
}
void token_embedding_forward(Context& context, const Tensor& tokens, const Tensor& weight, int64_t vocab_begin,
                             const Tensor& y) {
  of(context).token_embedding_forward(context, tokens, weight, vocab_begin, y);
}
void token_embedding_backward(Context& context, const Tensor& tokens, const Tensor& dy, int64_t vocab_begin,
                              const Tensor& dweight) {
  of(context).token_embedding_backward(context, tokens, dy, vocab_begin, dweight);
}
void position_embedding_forward(Context& context, const TokenRows& rows, const Tensor& weight, const Tensor& y) {
  of(context).position_embedding_forward(context, rows, weight, y);
}
void position_embedding_backward(Context& context, const TokenRows& rows, const Tensor& dy, const Tensor& dweight) {
  of(context).position_embedding_backward(context, rows, dy, dweight);
}
void attention_forward(Context& context, const Tensor& qkv, int64_t seq_len, int64_t num_heads, const Tensor& out,
                       const Tensor& lse) {
  of(context).attention_forward(context, qkv, seq_len, num_heads, out, lse);
}
void attention_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                        int64_t seq_len, int64_t num_heads, const Tensor& dqkv) {
  of(context).attention_backward(context, dout, qkv, out, lse, seq_len, num_heads, dqkv);
}
void cross_entropy_statistics(Context& context, const Tensor& logits, const Tensor& targets, int64_t vocab_begin,
                              int64_t vocab_size, const Tensor& row_max, const Tensor& stats) {
  of(context).cross_entropy_statistics(context, logits, targets, vocab_begin, vocab_size, row_max, stats);
}
void cross_entropy_rescale(Context& context, const Tensor& own_max, const Tensor& row_max, const Tensor& stats) {
  of(context).cross_entropy_rescale(context, own_max, row_max, stats);
}
void cross_entropy_loss(Context& context, const Tensor& targets, const Tensor& row_max, const Tensor& stats,
                        const Tensor& loss) {
  of(context).cross_entropy_loss(context, targets, row_max, stats, loss);
}
void cross_entropy_backward(Context& context, const Tensor& targets, int64_t vocab_begin, int64_t vocab_size,
                            const Tensor& row_max, const Tensor& stats, const Tensor& scale, const Tensor& logits) {
  of(context).cross_entropy_backward(context, targets, vocab_begin, vocab_size, row_max, stats, scale, logits);
}
void adamw_update(Context& context, const AdamWParams& params, const Tensor& scale, const Tensor& g, const Tensor& w,
                  const Tensor& m, const Tensor& v, const Tensor& rounded) {
  of(context).adamw_update(context, params, scale, g, w, m, v, rounded);
}
void sgd_update(Context& context, float lr, float weight_decay, const Tensor& scale, const Tensor& g, const Tensor& w,
                const Tensor& rounded) {
  of(context).sgd_update(context, lr, weight_decay, scale, g, w, rounded);
}
void reciprocal(Context& context, const Tensor& count, const Tensor& y) {
  of(context).reciprocal(context, count, y);
}
void to_fixed_point(Context& context, const Tensor& values, int num_ranks, const Tensor& sum) {
  of(context).to_fixed_point(context, values, num_ranks, sum);
}
void add_squares(Context& context, const std::vector<Tensor>& tensors, SquareSums how, const Tensor& sum) {
  of(context).add_squares(context, tensors, how, sum);
}
void clip_factor(Context& context, const Tensor& sum, double max_norm, const Tensor& scale) {
  of(context).clip_factor(context, sum, max_norm, scale);
}

}  // namespace sixfold::kernels
