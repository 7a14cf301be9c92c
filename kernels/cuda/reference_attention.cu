// Each product is a batch over the heads of one sequence, q, k and v being read and their gradients written where they
// lie in qkv and dqkv.
//
//   forward:   S = scale Q K^T;  P = causal softmax of S, lse;  O = P V
//   backward:  S again;  dP = dO V^T;  P = e^(S - lse), dS = scale P (dP - sum of P dP);
//              dV = P^T dO;  dQ = dS K;  dK = dS^T Q
#include <cmath>

#include "kernels/attention_shape.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reference_attention.h"

namespace sixfold::kernels::cuda {

namespace {

/// Row (b H + h) T + t: the probabilities of query t, which may take the place of its scores. Keys after it have 0.
template <typename T>
struct CausalSoftmax {
  const float* scores;
  T* probabilities;
  float* lse;
  int64_t seq_len;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    const int64_t t = row % seq_len;
    const float* s = scores + row * seq_len;
    T* p = probabilities + row * seq_len;
    float largest = s[0], sum = 0;
    for_channels<1>(lanes, t + 1, [&](int64_t u) { largest = s[u] > largest ? s[u] : largest; });
    largest = lanes.max(largest);
    for_channels<1>(lanes, t + 1, [&](int64_t u) { sum += std::exp(s[u] - largest); });
    sum = lanes.sum(sum);
    for_channels<1>(lanes, seq_len,
                    [&](int64_t u) { p[u] = static_cast<T>(u <= t ? std::exp(s[u] - largest) / sum : 0.0f); });
    if (lanes.index() == 0) lse[row] = largest + std::log(sum);
  }
};

/// The same row of backward: probabilities and gradients of scores, which may take the places of scores and dp.
template <typename T>
struct CausalSoftmaxBackward {
  const float* scores;
  const float* dp;
  const float* lse;
  T* probabilities;
  T* dscores;
  int64_t seq_len;
  float scale;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    const int64_t t = row % seq_len, begin = row * seq_len;
    const auto probability = [&](int64_t u) { return u <= t ? std::exp(scores[begin + u] - lse[row]) : 0.0f; };
    float average = 0;
    for_channels<1>(lanes, t + 1, [&](int64_t u) { average += probability(u) * dp[begin + u]; });
    average = lanes.sum(average);
    for_channels<1>(lanes, seq_len, [&](int64_t u) {
      const float p = probability(u), dscore = scale * p * (dp[begin + u] - average);
      probabilities[begin + u] = static_cast<T>(p);
      dscores[begin + u] = static_cast<T>(dscore);
    });
  }
};

/// The matrices of all heads of sequence b, as a batch.
struct SequenceHeads {
  const AttentionShape& s;
  int64_t b;

  /// Of q (part 0), k (1) or v (2), [T, D] each.
  GemmOperand qkv(const Tensor& tensor, int64_t part) const {
    return at(tensor, s.qkv_offset(part, b, 0, 0), s.qkv_stride(), s.head_dim);
  }
  GemmOperand out(const Tensor& tensor) const {  // [T, D] each
    return at(tensor, s.out_offset(b, 0, 0), s.num_channels(), s.head_dim);
  }
  GemmOperand scores(const Tensor& tensor) const {  // [T, T] each
    const int64_t size = s.seq_len * s.seq_len;
    return at(tensor, b * s.num_heads * size, s.seq_len, size);
  }

 private:
  static GemmOperand at(const Tensor& tensor, int64_t offset, int64_t stride, int64_t batch_stride) {
    void* data = static_cast<std::byte*>(tensor.raw()) + static_cast<size_t>(offset) * dtype_bytes(tensor.dtype());
    return {data, tensor.dtype(), stride, false, batch_stride};
  }
};

GemmOperand transposed(GemmOperand x) {
  x.transposed = !x.transposed;
  return x;
}

/// Of scores, probabilities or their gradients.
Tensor square(Context& context, const AttentionShape& s, DType dtype) {
  return Tensor::empty({s.num_rows, s.num_heads, s.seq_len, s.seq_len}, dtype, context.memory, Category::Activations);
}

/// c = scale S_h for each head; [T, T] with `inner` D, or [T, D] with `inner` T.
void multiply_heads(Context& context, const AttentionShape& s, int64_t columns, int64_t inner, const GemmOperand& a,
                    const GemmOperand& b, const GemmOperand& c, float scale = 1) {
  Gemm g;
  g.m = s.seq_len;
  g.n = columns;
  g.k = inner;
  g.a = a;
  g.b = b;
  g.c = c;
  g.batch = s.num_heads;
  g.scale = scale;
  gemm(context, g);
}

Tensor scaled_scores(Context& context, const AttentionShape& s, const Tensor& qkv) {
  const Tensor scores = square(context, s, DType::F32);
  for (int64_t b = 0; b < s.num_rows; ++b) {
    const SequenceHeads heads{s, b};
    multiply_heads(context, s, s.seq_len, s.head_dim, heads.qkv(qkv, 0), transposed(heads.qkv(qkv, 1)),
                   heads.scores(scores), s.scale());
  }
  return scores;
}

}  // namespace

void attention_reference_forward(Context& context, const Tensor& qkv, int64_t seq_len, int64_t num_heads,
                                 const Tensor& out, const Tensor& lse) {
  const AttentionShape s(out, seq_len, num_heads);
  const int64_t rows = s.num_rows * s.seq_len;
  float* lse_data = checked<float>(lse, {s.num_rows, s.num_heads, s.seq_len}, "attention lse");
  dispatch_float(qkv.dtype(), [&](auto element) {
    using T = decltype(element);
    checked<T>(qkv, {rows, s.qkv_stride()}, "attention qkv");
    checked<T>(out, {rows, s.num_channels()}, "attention out");
    const Tensor scores = scaled_scores(context, s, qkv);
    const Tensor p = qkv.dtype() == DType::F32 ? scores : square(context, s, qkv.dtype());
    const CausalSoftmax<T> softmax{scores.device_data<float>(), p.device_data<T>(), lse_data, s.seq_len};
    for_each_row<RowBy::Block>(context, lse.numel(), softmax);
    for (int64_t b = 0; b < s.num_rows; ++b) {
      const SequenceHeads heads{s, b};
      multiply_heads(context, s, s.head_dim, s.seq_len, heads.scores(p), heads.qkv(qkv, 2), heads.out(out));
    }
  });
}

void attention_reference_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& lse,
                                  int64_t seq_len, int64_t num_heads, const Tensor& dqkv) {
  const AttentionShape s(dout, seq_len, num_heads);
  const int64_t rows = s.num_rows * s.seq_len;
  const float* lse_data = checked<float>(lse, {s.num_rows, s.num_heads, s.seq_len}, "attention lse");
  dispatch_float(qkv.dtype(), [&](auto element) {
    using T = decltype(element);
    checked<T>(qkv, {rows, s.qkv_stride()}, "attention qkv");
    checked<T>(dqkv, {rows, s.qkv_stride()}, "attention dqkv");
    checked<T>(dout, {rows, s.num_channels()}, "attention dout");
    const bool in_place = qkv.dtype() == DType::F32;
    const Tensor scores = scaled_scores(context, s, qkv), dp = square(context, s, DType::F32);
    const Tensor p = in_place ? scores : square(context, s, qkv.dtype());
    const Tensor dscores = in_place ? dp : square(context, s, qkv.dtype());
    for (int64_t b = 0; b < s.num_rows; ++b) {
      const SequenceHeads heads{s, b};
      multiply_heads(context, s, s.seq_len, s.head_dim, heads.out(dout), transposed(heads.qkv(qkv, 2)),
                     heads.scores(dp));
    }
    const CausalSoftmaxBackward<T> softmax{scores.device_data<float>(),
                                           dp.device_data<float>(),
                                           lse_data,
                                           p.device_data<T>(),
                                           dscores.device_data<T>(),
                                           s.seq_len,
                                           s.scale()};
    for_each_row<RowBy::Block>(context, lse.numel(), softmax);
    for (int64_t b = 0; b < s.num_rows; ++b) {
      const SequenceHeads heads{s, b};
      const GemmOperand ds = heads.scores(dscores);
      multiply_heads(context, s, s.head_dim, s.seq_len, ds, heads.qkv(qkv, 1), heads.qkv(dqkv, 0));
      multiply_heads(context, s, s.head_dim, s.seq_len, transposed(ds), heads.qkv(qkv, 0), heads.qkv(dqkv, 1));
      multiply_heads(context, s, s.head_dim, s.seq_len, transposed(heads.scores(p)), heads.out(dout),
                     heads.qkv(dqkv, 2));
    }
  });
}

}  // namespace sixfold::kernels::cuda
