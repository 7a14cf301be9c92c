// For each tile of queries, over the tiles of keys up to the diagonal:
//
//   1. scores S = scale Q K^T, keys after the query left out
//   2. the row maximum m grows to m'; sums and outputs so far are scaled by e^(m - m'); P = e^(S - m')
//   3. sums += row sums of P; O += P V
//
// and at the end out = O / sums, lse = m + log(sums).
#include <limits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kernel_table.h"
#include "kernels/vector_math.h"

namespace sixfold::kernels::cpu {

void attention_forward(Context& context, const Tensor& qkv, int64_t seq_len, int64_t num_heads, const Tensor& out,
                       const Tensor& lse) {
  const TiledAttention s(out, seq_len, num_heads);
  const float* in = checked<float>(qkv, {s.num_rows * s.seq_len, s.qkv_stride()}, "attention qkv");
  float* out_data = checked<float>(out, {s.num_rows * s.seq_len, s.num_channels()}, "attention out");
  float* lse_data = checked<float>(lse, {s.num_rows, s.num_heads, s.seq_len}, "attention lse");

  const int64_t num_pieces = s.num_rows * s.num_heads * s.num_tiles();
  const int64_t scratch_size = kAttentionTile * (kAttentionTile + 2);
  parallel_for_with_scratch(context, Pieces::Long, num_pieces, scratch_size, [&](int64_t piece, float* scratch) {
    const int64_t query_tile = piece % s.num_tiles(), h = piece / s.num_tiles() % s.num_heads;
    const int64_t b = piece / s.num_tiles() / s.num_heads, t0 = query_tile * kAttentionTile;
    const int64_t num_queries = s.tile_size(query_tile), stride = s.qkv_stride(), out_stride = s.num_channels();
    float *scores = scratch, *maxima = scores + kAttentionTile * kAttentionTile, *sums = maxima + kAttentionTile;
    float* o = out_data + s.out_offset(b, h, t0);
    for (int64_t i = 0; i < num_queries; ++i) {
      std::fill_n(o + i * out_stride, s.head_dim, 0.0f);
      maxima[i] = -std::numeric_limits<float>::infinity();
      sums[i] = 0.0f;
    }
    for (int64_t key_tile = 0; key_tile <= query_tile; ++key_tile) {
      const int64_t u0 = key_tile * kAttentionTile, num_keys = s.tile_size(key_tile);
      std::fill_n(scores, num_queries * kAttentionTile, 0.0f);
      gemm_tile(num_queries, num_keys, s.head_dim, {in + s.qkv_offset(0, b, h, t0), stride, false},
                {in + s.qkv_offset(1, b, h, u0), stride, true}, scores, kAttentionTile);
      for (int64_t i = 0; i < num_queries; ++i) {
        float* row = scores + i * kAttentionTile;
        const int64_t visible = std::min(num_keys, t0 + i - u0 + 1);
        const float tile_max =
            s.scale() * lane_reduce(
                            visible, -std::numeric_limits<float>::infinity(), [=](int64_t j) { return row[j]; },
                            [](float x, float y) { return x < y ? y : x; });
        const float m = std::max(maxima[i], tile_max);
        const float rescale = exp_f32(maxima[i] - m);
        for (int64_t j = 0; j < visible; ++j) row[j] = exp_f32(row[j] * s.scale() - m);
        std::fill(row + visible, row + num_keys, 0.0f);
        sums[i] = sums[i] * rescale + lane_sum(visible, [=](int64_t j) { return row[j]; });
        maxima[i] = m;
        for (int64_t d = 0; d < s.head_dim; ++d) o[i * out_stride + d] *= rescale;
      }
      gemm_tile(num_queries, s.head_dim, num_keys, {scores, kAttentionTile, false},
                {in + s.qkv_offset(2, b, h, u0), stride, false}, o, out_stride);
    }
    for (int64_t i = 0; i < num_queries; ++i) {
      for (int64_t d = 0; d < s.head_dim; ++d) o[i * out_stride + d] /= sums[i];
      lse_data[s.lse_offset(b, h, t0 + i)] = maxima[i] + std::log(sums[i]);
    }
  });
}

}  // namespace sixfold::kernels::cpu
