// For each tile of queries, over the tiles of keys up to the diagonal, all scores in powers of two:
//
//   1. S = Q K^T, keys after the query -inf
//   2. the row maximum m grows to m'; sums and outputs so far are scaled by 2^(m - m'); P = 2^(S - m')
//   3. sums += row sums of P; O += P V
//
// and at the end out = O / sums, lse = m + log(sums).
#include "kernels/cuda/flash_tiles.h"

namespace sixfold::kernels::cuda {

namespace {

/// Every query sees key 0, which is in the first tile: from there on no maximum is -inf, and no difference NaN.
template <typename T, int kHeadDim>
struct FlashForward {
  static constexpr bool kTensorCores = std::is_same_v<T, BF16>;
  static constexpr int kWarps = 4, kBlocksPerSm = kTensorCores ? 2 : 1;
  static constexpr int kM = kTensorCores ? 2 : 1, kQueries = 16 * kM * kWarps;
  static constexpr int kKeys = kHeadDim > 64 ? 32 : 64;
  using QueryTile = SharedTile<T, kQueries, kHeadDim>;
  using KeyTile = SharedTile<T, kKeys, kHeadDim>;
  static constexpr size_t kSharedBytes = QueryTile::kBytes + 4 * KeyTile::kBytes;
  static_assert(kSharedBytes <= kMaxSharedBytes);

  struct State {
    Sums<kM, kHeadDim / 8> o;
    PerLane<float[2]> maxima[kM], sums[kM];  // sums: of this lane's columns
  };

  FlashTensors<T> tensors;
  T* out;
  float* lse;

  template <typename Block>
  SIXFOLD_DEVICE void operator()(Block& block, int64_t index) const {
    const HeadTile at = tensors.template tile<Order::Last>(index, kQueries);
    const int seq_len = tensors.seq_len(), num_keys = tensors.num_keys(at, kQueries);
    T* shared = reinterpret_cast<T*>(block.shared());
    const QueryTile q{shared};
    const auto keys = [&](int tile) { return KeyTile{shared + QueryTile::kSize + tile % 2 * KeyTile::kSize}; };
    const auto values = [&](int tile) { return KeyTile{shared + QueryTile::kSize + (2 + tile % 2) * KeyTile::kSize}; };
    const auto load_keys = [&](int tile) { tensors.load_keys(block, at, tile, keys(tile), values(tile)); };

    PerWarp<kWarps, State> states;
    block.each_warp([&](const Warp& warp) { start(warp, states[warp.index()]); });
    load_tile(block, q, tensors.qkv_rows(at, tensors.qkv, 0), at.row0, seq_len);
    for_each_tile<kKeys>(block, 0, num_keys, load_keys, [&](const Warp& warp, int tile) {
      const int in_tile = warp.index() * 16 * kM;
      add_keys(warp, states[warp.index()], q, in_tile, keys(tile), values(tile), at.row0 + in_tile, tile * kKeys);
    });
    block.each_warp(
        [&](const Warp& warp) { finish(warp, states[warp.index()], at, at.row0 + warp.index() * 16 * kM); });
  }

 private:
  SIXFOLD_DEVICE void start(const Warp& warp, State& state) const {
    clear(warp, state.o);
    each_sum_row<kM>(warp, [&](int lane, int m, int half) {
      state.maxima[m][lane][half] = -INFINITY;
      state.sums[m][lane][half] = 0;
    });
  }

  /// Steps 1 to 3 for the warp's queries, from query0 on, in rows q0 .. of their tile, and the keys from key0 on.
  SIXFOLD_DEVICE void add_keys(const Warp& warp, State& state, const QueryTile& q, int q0, const KeyTile& k,
                               const KeyTile& v, int query0, int key0) const {
    if (key0 >= query0 + 16 * kM) return;  // after all of the warp's queries
    Sums<kM, kKeys / 8> scores;
    clear(warp, scores);
    add_rows_by_rows(warp, scores, q, q0, k, 0);
    if (key0 + kKeys > query0 + 1) {
      each_sum<decltype(scores)>(warp, [&](int lane, int m, int n, int i) {
        if (key0 + 8 * n + sum_column(lane, i) > query0 + 16 * m + sum_row(lane, i)) {
          scores.part[m][n][lane][i] = -INFINITY;
        }
      });
    }
    SIXFOLD_UNROLL
    for (int m = 0; m < kM; ++m) to_probabilities(warp, state, scores, m);
    add_sums_by_rows(warp, state.o, scores, v, 0);
  }

  /// Step 2 and the sums of step 3, for rows 16 m .. 16 m + 15.
  SIXFOLD_DEVICE void to_probabilities(const Warp& warp, State& state, Sums<kM, kKeys / 8>& scores, int m) const {
    const float to_log2 = tensors.scale * kLog2E;
    PerLane<float[2]> tops;
    warp.each_lane([&](int lane) {
      SIXFOLD_UNROLL
      for (int half = 0; half < 2; ++half) {
        float top = scores.part[m][0][lane][2 * half];
        SIXFOLD_UNROLL
        for (int n = 0; n < kKeys / 8; ++n) {
          SIXFOLD_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) top = fmaxf(top, scores.part[m][n][lane][i]);
        }
        tops[lane][half] = top * to_log2;
      }
    });
    warp.max_of_quads(tops);
    warp.each_lane([&](int lane) {
      SIXFOLD_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float top = fmaxf(tops[lane][half], state.maxima[m][lane][half]);
        const float rescale = exp2_f32(state.maxima[m][lane][half] - top);
        float sum = state.sums[m][lane][half] * rescale;
        SIXFOLD_UNROLL
        for (int n = 0; n < kKeys / 8; ++n) {
          SIXFOLD_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            float& p = scores.part[m][n][lane][i];
            p = exp2_f32(p * to_log2 - top);
            sum += p;
          }
        }
        SIXFOLD_UNROLL
        for (int n = 0; n < kHeadDim / 8; ++n) {
          SIXFOLD_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) state.o.part[m][n][lane][i] *= rescale;
        }
        state.maxima[m][lane][half] = top;
        state.sums[m][lane][half] = sum;
      }
    });
  }

  SIXFOLD_DEVICE void finish(const Warp& warp, State& state, const HeadTile& at, int query0) const {
    SIXFOLD_UNROLL
    for (int m = 0; m < kM; ++m) warp.sum_of_quads(state.sums[m]);
    store_sums(warp, state.o, tensors.out_rows(at, out), query0, tensors.seq_len(),
               [&](int lane, int m, int half) { return 1.0f / state.sums[m][lane][half]; });
    each_sum_row<kM>(warp, [&](int lane, int m, int half) {
      const int query = query0 + 16 * m + sum_row(lane, 2 * half);
      if (lane % 4 == 0 && query < tensors.seq_len()) {
        lse[tensors.shape.lse_offset(at.b, at.h, query)] =
            kLn2 * state.maxima[m][lane][half] + logf(state.sums[m][lane][half]);
      }
    });
  }
};

}  // namespace

void attention_flash_forward(Context& context, const Tensor& qkv, int64_t seq_len, int64_t num_heads, const Tensor& out,
                             const Tensor& lse) {
  const AttentionShape s(out, seq_len, num_heads);
  const int64_t rows = s.num_rows * s.seq_len;
  dispatch_float(qkv.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* in = checked<T>(qkv, {rows, s.qkv_stride()}, "attention qkv");
    T* out_data = checked<T>(out, {rows, s.num_channels()}, "attention out");
    float* lse_data = checked<float>(lse, {s.num_rows, s.num_heads, s.seq_len}, "attention lse");
    const FlashTensors<T> tensors{s, in, takes_chunks<T>(s.head_dim, {in, out_data}), s.scale()};
    dispatch_head_dim(s.head_dim, [&](auto head_dim) {
      using Forward = FlashForward<T, decltype(head_dim)::value>;
      for_each_block(context, num_head_tiles(s, Forward::kQueries), Forward{tensors, out_data, lse_data});
    });
  });
}

}  // namespace sixfold::kernels::cuda
