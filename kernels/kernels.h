// Every operation of the models and the optimizer, one signature each.
//
// Each runs on the device of the context (kernel_table.h), where its tensors must be; on a GPU it has been issued when
// it returns. Tensors are contiguous, row-major, f32 unless said otherwise; shapes are checked (CheckError). Outputs
// are overwritten unless the comment says "+=". Inputs and outputs must not overlap unless said otherwise. Results do
// not depend on Context::num_threads nor on the address of any buffer: work is cut into pieces of a fixed size, and
// each element is summed by one thread in a fixed order.
//
// Letters: B rows (sequences) of the micro-batch, T positions of a row, R = B * T token rows, C channels, V vocabulary
// rows on this rank, H heads on this rank, D channels of a head.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/core/memory.h"
#include "runtime/core/tensor.h"

namespace sixfold::kernels {

class Queue;  // queue.h

/// A memory, and where kernels that work on it are issued.
struct Place {
  Place(Memory& memory_, Queue* queue_ = nullptr) : memory(memory_), queue(queue_) {}  // NOLINT: a memory of the CPU
  Memory& memory;
  Queue* queue;  // of the memory's GPU (queue.h); nullptr: the CPU, where a kernel has run when it returns
};

/// Where kernels run and where their temporaries come from. Passed to every kernel, owned by the trainer.
struct Context {
  Memory& memory;       // temporaries, Category::Activations
  int num_threads = 1;  // OpenMP threads of one kernel
  /// Called on the kernel's calling thread every now and then, between pieces of matrix products and attention: what
  /// has no thread of its own, communication, goes on meanwhile. May throw. Empty: nothing is called.
  std::function<void()> between = nullptr;
  Queue* queue = nullptr;    // as in Place
  DType dtype = DType::F32;  // of activations: f32, on a GPU also bf16

  operator Place() const { return {memory, queue}; }  // NOLINT: what has a context has a place
};

/// A context of one thread.
inline Context context_of(const Place& place) {
  return {place.memory, 1, nullptr, place.queue};
}

// ---- Copies --------------------------------------------------------------------------------------------------------

/// Every byte of t becomes 0. Any dtype.
void zero(Context& context, const Tensor& t);
/// dst = src, both on the context's device. Shapes may differ, numel and dtype must not.
void copy(Context& context, const Tensor& src, const Tensor& dst);
/// A tensor of the place's memory, all bytes zero.
Tensor zeros(const Place& place, Shape shape, DType dtype, Category category);
/// src where the CPU may look at it: itself, or a copy of what is there when all that was issued before has run.
Tensor on_host(const Place& place, const Tensor& src);
/// The same, of f32 or bf16, as f32.
Tensor floats_on_host(const Place& place, const Tensor& src);
/// dst = host, a tensor on the CPU that may change when this returns.
void from_host(const Place& place, const Tensor& host, const Tensor& dst);
/// The same from f32 to f32 or bf16.
void floats_from_host(const Place& place, const Tensor& host, const Tensor& dst);

// ---- GEMM ----------------------------------------------------------------------------------------------------------

/// c[M, N] = op(a) op(b), or c += with `accumulate`; op transposes where the flag is set.
/// Stored shapes: a [M, K] (or [K, M] transposed), b [K, N] (or [N, K] transposed).
void matmul(Context& context, bool transpose_a, bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& c,
            bool accumulate);

/// y[R, N] = x[R, K] weight[K, N] + bias[N]; an undefined bias adds nothing. GPT-2 stores weights as [in, out].
void linear_forward(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y);
/// hidden[R, N] = x[R, K] weight[K, N] + bias[N], and activated = gelu(hidden) (below).
void linear_gelu_forward(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& hidden, const Tensor& activated);
/// dx[R, K] = dy[R, N] weight^T.
void linear_backward_input(Context& context, const Tensor& dy, const Tensor& weight, const Tensor& dx);
/// dhidden[R, K] = (dy[R, N] weight^T) * gelu'(hidden[R, K]): through a linear and the GELU before it.
void linear_gelu_backward_input(Context& context, const Tensor& dy, const Tensor& weight, const Tensor& hidden,
                                const Tensor& dhidden);
/// dweight[K, N] += x^T dy; dbias[N] += column sums of dy. Either is skipped when undefined.
void linear_backward_weight(Context& context, const Tensor& x, const Tensor& dy, const Tensor& dweight,
                            const Tensor& dbias);

// ---- LayerNorm -----------------------------------------------------------------------------------------------------

/// y[R, C] = (x - mean) * rstd * gamma[C] + beta[C], with mean[R] and rstd[R] = 1 / sqrt(variance + eps) of each row
/// written for backward. Source: Ba, Kiros, Hinton, "Layer Normalization", 2016.
void layernorm_forward(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps,
                       const Tensor& y, const Tensor& mean, const Tensor& rstd);
/// dx[R, C] += gradient of the input (+= because the residual branch has put its gradient there).
void layernorm_backward_input(Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                              const Tensor& mean, const Tensor& rstd, const Tensor& dx);
/// dgamma[C] += sum over rows of dy * normalised x; dbeta[C] += column sums of dy. Either is skipped when undefined.
void layernorm_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const Tensor& mean,
                               const Tensor& rstd, const Tensor& dgamma, const Tensor& dbeta);

// ---- Element-wise --------------------------------------------------------------------------------------------------

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's GELU (Hendrycks, Gimpel 2016, section 2). Any shape.
void gelu_forward(Context& context, const Tensor& x, const Tensor& y);
/// dx = dy * gelu'(x). dx may be dy.
void gelu_backward(Context& context, const Tensor& dy, const Tensor& x, const Tensor& dx);

/// dst += src. Any shape; src f32 or bf16.
void accumulate(Context& context, const Tensor& src, const Tensor& dst);
/// dst [B, A, n] = src [A, B, n] with its first two dims swapped.
void swap_dims(Context& context, const Tensor& src, const Tensor& dst);
/// dst = src, from f32 to bf16 (rounded to nearest, ties to even; NaN and infinity stay) or back (exact). Any shape.
void convert(Context& context, const Tensor& src, const Tensor& dst);

/// Which token rows a tensor [R, C] holds, in global terms: row b * seq_len + t is position seq_offset + t of the
/// global sample sample_index[b]; its channel c is the global channel channel_offset + c.
struct TokenRows {
  const int64_t* sample_index = nullptr;  // [num_rows], in memory of the context's device
  int64_t num_rows = 0;                   // B
  int64_t seq_len = 0;                    // T on this rank
  int64_t seq_offset = 0;
  int64_t channel_offset = 0;
};

/// A place in the model where values are dropped. A mask bit is a pure function of (seed, step, layer, site, global
/// sample, position, channel), so it does not depend on how anything is sharded, and backward draws it again.
///
/// With key = philox_hash(philox_hash(seed, step), layer << 32 | site) and block = philox(key, {low and high half of
/// sample, position, c / 4}), channel c is dropped where uniform_float(block[c % 4]) < probability.
struct DropoutSite {
  float probability = 0;  // 0: nothing is dropped, no random number is drawn
  uint64_t seed = 0;
  int64_t step = 0;
  int layer = 0;
  int site = 0;
};

/// y = residual + x * mask / (1 - probability); an undefined residual adds nothing. y may be x or residual. Shape [R,
/// C].
void dropout_forward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& x,
                     const Tensor& residual, const Tensor& y);
/// dx = dy * mask / (1 - probability). dx may be dy.
void dropout_backward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& dy,
                      const Tensor& dx);
/// sum[R, C] = what dropout_forward makes of x and residual, either of which it may be; then y, mean and rstd as
/// layernorm_forward makes them of sum. Rows have all their channels: rows.channel_offset is 0.
void residual_layernorm_forward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& x,
                                const Tensor& residual, const Tensor& gamma, const Tensor& beta, float eps,
                                const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd);

// ---- Embedding -----------------------------------------------------------------------------------------------------

/// y[R, C] = weight[token - vocab_begin] where the token's row is one of the V rows of weight[V, C], else 0 (another
/// rank's part of a vocabulary-parallel embedding holds it). tokens: i32 [R].
void token_embedding_forward(Context& context, const Tensor& tokens, const Tensor& weight, int64_t vocab_begin,
                             const Tensor& y);
/// dweight[token - vocab_begin] += dy of every row with a token held here, rows in order.
void token_embedding_backward(Context& context, const Tensor& tokens, const Tensor& dy, int64_t vocab_begin,
                              const Tensor& dweight);
/// y[R, C] += weight[seq_offset + t] for row b * seq_len + t; weight [max positions, C].
void position_embedding_forward(Context& context, const TokenRows& rows, const Tensor& weight, const Tensor& y);
/// dweight[seq_offset + t] += sum over b of dy[b * seq_len + t].
void position_embedding_backward(Context& context, const TokenRows& rows, const Tensor& dy, const Tensor& dweight);

// ---- Attention -----------------------------------------------------------------------------------------------------

/// Causal self-attention, streaming: no T x T buffer exists, where attention_streams() (temporaries.h). qkv [R, 3 H D]
/// holds q, k, v of all heads one after the other (each [H D]); out [R, H D]; lse [B, H, T] receives log sum exp of
/// each query's scaled scores, for backward. Source: Dao, Fu, Ermon, Rudra, Re, "FlashAttention", 2022, algorithms 1
/// and 4.
void attention_forward(Context& context, const Tensor& qkv, int64_t seq_len, int64_t num_heads, const Tensor& out,
                       const Tensor& lse);
/// dqkv [R, 3 H D] from dout [R, H D] and what forward saw and wrote.
void attention_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                        int64_t seq_len, int64_t num_heads, const Tensor& dqkv);

// ---- Cross-entropy, in steps between which a vocabulary-parallel group reduces ------------------------------------

/// logits [R, V]; targets i32 [R], below vocab_size. Those below 0 are masked: no loss, no gradient, not counted.
///
/// 1. Of this rank's real columns (vocab_begin + column < vocab_size; the rest is padding): row_max[R], the maximum,
///    -inf where a rank has none; stats[R, 2], the sum of exp(logit - row_max), and the target's logit itself, 0 where
///    another rank holds the target.
void cross_entropy_statistics(Context& context, const Tensor& logits, const Tensor& targets, int64_t vocab_begin,
                              int64_t vocab_size, const Tensor& row_max, const Tensor& stats);
/// 2. In a group: after AllReduce(max) of own_max, what 1. has written, into row_max, the sums in stats become relative
///    to row_max; then AllReduce(sum) of stats.
void cross_entropy_rescale(Context& context, const Tensor& own_max, const Tensor& row_max, const Tensor& stats);
/// 3. loss[1] = the sum over valid rows of log(sum of exp) - (target's logit - row_max), added in double.
void cross_entropy_loss(Context& context, const Tensor& targets, const Tensor& row_max, const Tensor& stats,
                        const Tensor& loss);
/// 4. logits[R, V] becomes its own gradient, in place: (softmax - one-hot of the target) * scale[1] for valid rows, 0
///    for masked rows and padding columns.
void cross_entropy_backward(Context& context, const Tensor& targets, int64_t vocab_begin, int64_t vocab_size,
                            const Tensor& row_max, const Tensor& stats, const Tensor& scale, const Tensor& logits);

// ---- Optimizer -----------------------------------------------------------------------------------------------------

/// AdamW with decoupled decay (Loshchilov, Hutter 2019, algorithm 2), in place on w, m, v; g is read times scale[1], 1
/// where that is undefined. Where it is NaN, nothing changes. `step` counts from 1. `rounded`, where it is defined,
/// becomes w in bf16: then w are the master weights of parameters that kernels read in 16 bits.
struct AdamWParams {
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  int64_t step = 1;
};
void adamw_update(Context& context, const AdamWParams& params, const Tensor& scale, const Tensor& g, const Tensor& w,
                  const Tensor& m, const Tensor& v, const Tensor& rounded = {});
/// w -= lr * scale * g + lr * weight_decay * w. `scale` and `rounded` as above.
void sgd_update(Context& context, float lr, float weight_decay, const Tensor& scale, const Tensor& g, const Tensor& w,
                const Tensor& rounded = {});

// ---- Numbers of a step: on a GPU they stay there while the step lasts, and the CPU need not wait for them ----------

/// y[1] = 1 / count[1], which is i64; 0 where that is 0.
void reciprocal(Context& context, const Tensor& count, const Tensor& y);
/// sum (i64 [2], the words of a FixedPoint) = all of `values`, added in double, as one of num_ranks addends.
void to_fixed_point(Context& context, const Tensor& values, int num_ranks, const Tensor& sum);

enum class SquareSums : uint8_t {
  ByTensor,   // each tensor's in double, in an order that depends on its numel only
  ByElement,  // every square without rounding: the same however elements are cut into tensors; slower
};
/// sum (i64 [ExactSum::kNumWords], the words of an ExactSum without carries) += the squares of all elements of each
/// tensor. Fewer than 2^31 elements in each.
void add_squares(Context& context, const std::vector<Tensor>& tensors, SquareSums how, const Tensor& sum);
/// scale[1] = what gradients whose squares add up to `sum` (as above) are multiplied by, so that their norm is max_norm
/// at most; 1 where that is 0, NaN where the sum is (clip_scale in update_rules.h).
void clip_factor(Context& context, const Tensor& sum, double max_norm, const Tensor& scale);

}  // namespace sixfold::kernels
