// With P = e^(scale Q K^T - lse) recomputed tile by tile and delta_i = sum over d of dout_id out_id:
//
//   dV = P^T dO;   dP = dO V^T;   dS = scale P (dP - delta);   dQ = dS K;   dK = dS^T Q
//
// One piece of work is one head of one sequence, so no two threads add to the same gradient.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"
#include "kernels/vector_math.h"

namespace sixfold::kernels::cpu {

void attention_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                        int64_t seq_len, int64_t num_heads, const Tensor& dqkv) {
  const TiledAttention s(out, seq_len, num_heads);
  const int64_t rows = s.num_rows * s.seq_len;
  const float* dout_data = checked<float>(dout, {rows, s.num_channels()}, "attention dout");
  const float* in = checked<float>(qkv, {rows, s.qkv_stride()}, "attention qkv");
  const float* out_data = checked<float>(out, {rows, s.num_channels()}, "attention out");
  const float* lse_data = checked<float>(lse, {s.num_rows, s.num_heads, s.seq_len}, "attention lse");
  float* din = checked<float>(dqkv, {rows, s.qkv_stride()}, "attention dqkv");

  parallel_for_with_scratch(
      context, Pieces::Long, s.num_rows * s.num_heads, attention_backward_scratch(s.seq_len),
      [&](int64_t piece, float* scratch) {
        const int64_t b = piece / s.num_heads, h = piece % s.num_heads;
        const int64_t stride = s.qkv_stride(), out_stride = s.num_channels();
        float *probabilities = scratch, *dscores = probabilities + kAttentionTileFloats;
        float* delta = dscores + kAttentionTileFloats;
        for (int64_t t = 0; t < s.seq_len; ++t) {
          const float *o = out_data + s.out_offset(b, h, t), *go = dout_data + s.out_offset(b, h, t);
          delta[t] = lane_sum(s.head_dim, [=](int64_t d) { return o[d] * go[d]; });
          for (int64_t part = 0; part < 3; ++part) std::fill_n(din + s.qkv_offset(part, b, h, t), s.head_dim, 0.0f);
        }
        for (int64_t key_tile = 0; key_tile < s.num_tiles(); ++key_tile)
          for (int64_t query_tile = key_tile; query_tile < s.num_tiles(); ++query_tile) {
            const int64_t t0 = query_tile * kAttentionTile, u0 = key_tile * kAttentionTile;
            const int64_t num_queries = s.tile_size(query_tile), num_keys = s.tile_size(key_tile);
            const int64_t q = s.qkv_offset(0, b, h, t0), k = s.qkv_offset(1, b, h, u0), v = s.qkv_offset(2, b, h, u0);
            const float* go = dout_data + s.out_offset(b, h, t0);
            std::fill_n(probabilities, 2 * kAttentionTileFloats, 0.0f);
            gemm_tile(num_queries, num_keys, s.head_dim, {in + q, stride, false}, {in + k, stride, true}, probabilities,
                      kAttentionTile);
            gemm_tile(num_queries, num_keys, s.head_dim, {go, out_stride, false}, {in + v, stride, true}, dscores,
                      kAttentionTile);
            for (int64_t i = 0; i < num_queries; ++i) {
              float *p = probabilities + i * kAttentionTile, *ds = dscores + i * kAttentionTile;
              const int64_t visible = std::min(num_keys, t0 + i - u0 + 1);
              const float row_lse = lse_data[s.lse_offset(b, h, t0 + i)], row_delta = delta[t0 + i];
              for (int64_t j = 0; j < visible; ++j) {
                p[j] = exp_f32(p[j] * s.scale() - row_lse);
                ds[j] = s.scale() * p[j] * (ds[j] - row_delta);
              }
              std::fill(p + visible, p + num_keys, 0.0f);
              std::fill(ds + visible, ds + num_keys, 0.0f);
            }
            gemm_tile(num_keys, s.head_dim, num_queries, {probabilities, kAttentionTile, true}, {go, out_stride, false},
                      din + v, stride);
            gemm_tile(num_queries, s.head_dim, num_keys, {dscores, kAttentionTile, false}, {in + k, stride, false},
                      din + q, stride);
            gemm_tile(num_keys, s.head_dim, num_queries, {dscores, kAttentionTile, true}, {in + q, stride, false},
                      din + k, stride);
          }
      });
}

}  // namespace sixfold::kernels::cpu
