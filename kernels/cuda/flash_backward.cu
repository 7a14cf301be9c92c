// With P = 2^(S - lse) recomputed from S = scale Q K^T, both in powers of two, and delta = row sums of dO * O:
//
//   dV = P^T dO;   dP = dO V^T;   dS = P (dP - delta);   dQ = scale dS K;   dK = scale dS^T Q
//
// Three launches: delta; dQ by tiles of queries over tiles of keys; dK and dV by tiles of keys over tiles of queries.
// The last works on S^T and dP^T, keys in rows, so that P^T and dS^T are left operands where they are computed.
#include "kernels/cuda/flash_tiles.h"
#include "kernels/cuda/temporaries.h"

namespace sixfold::kernels::cuda {

namespace {

/// delta [B, H, T]: a row is one query of one head.
template <typename T>
struct FlashDelta {
  AttentionShape shape;
  const T* out;
  const T* dout;
  float* delta;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    const int64_t head = row / shape.seq_len;
    const int64_t offset = shape.out_offset(head / shape.num_heads, head % shape.num_heads, row % shape.seq_len);
    float sum = 0;
    for_channels<1>(lanes, shape.head_dim, [&](int64_t c) {
      sum += static_cast<float>(out[offset + c]) * static_cast<float>(dout[offset + c]);
    });
    sum = lanes.sum(sum);
    if (lanes.index() == 0) delta[row] = sum;
  }
};

/// What backward reads besides qkv.
template <typename T>
struct FlashGradients {
  const T* dout;
  const float* lse;
  const float* delta;
};

/// P and dS of one element, given its score and dP; lse2: of its query, in powers of two.
SIXFOLD_DEVICE inline float probability(float score, float to_log2, float lse2, bool visible) {
  return visible ? exp2_f32(score * to_log2 - lse2) : 0.0f;
}

template <typename T, int kHeadDim>
struct FlashQueryGradient {
  static constexpr bool kTensorCores = std::is_same_v<T, BF16>;
  static constexpr int kWarps = kTensorCores || kHeadDim <= 64 ? 4 : 2, kBlocksPerSm = kTensorCores ? 2 : 1;
  static constexpr int kM = kTensorCores && kHeadDim <= 64 ? 2 : 1, kQueries = 16 * kM * kWarps;
  static constexpr int kKeys = sizeof(T) * kHeadDim <= 128 ? 64 : kHeadDim <= 64 || kTensorCores ? 32 : 16;
  static constexpr int kStep = kKeys < 32 ? kKeys : 32;  // keys whose scores are in registers
  using QueryTile = SharedTile<T, kQueries, kHeadDim>;
  using KeyTile = SharedTile<T, kKeys, kHeadDim>;
  static constexpr size_t kSharedBytes = 2 * QueryTile::kBytes + 4 * KeyTile::kBytes;
  static_assert(kSharedBytes <= kMaxSharedBytes);

  struct State {
    Sums<kM, kHeadDim / 8> dq;
    PerLane<float[2]> lse2[kM], delta[kM];
  };

  FlashTensors<T> tensors;
  FlashGradients<T> gradients;
  T* dqkv;

  template <typename Block>
  SIXFOLD_DEVICE void operator()(Block& block, int64_t index) const {
    const HeadTile at = tensors.template tile<Order::Last>(index, kQueries);
    const int seq_len = tensors.seq_len(), num_keys = tensors.num_keys(at, kQueries);
    T* shared = reinterpret_cast<T*>(block.shared());
    const QueryTile q{shared}, dout{shared + QueryTile::kSize};
    const auto keys = [&](int tile) { return KeyTile{shared + 2 * QueryTile::kSize + tile % 2 * KeyTile::kSize}; };
    const auto values = [&](int tile) { return KeyTile{keys(tile).data + 2 * KeyTile::kSize}; };
    const auto load_keys = [&](int tile) { tensors.load_keys(block, at, tile, keys(tile), values(tile)); };

    PerWarp<kWarps, State> states;
    block.each_warp([&](const Warp& warp) { start(warp, states[warp.index()], at, at.row0 + warp.index() * 16 * kM); });
    load_tile(block, q, tensors.qkv_rows(at, tensors.qkv, 0), at.row0, seq_len);
    load_tile(block, dout, tensors.out_rows(at, gradients.dout), at.row0, seq_len);
    for_each_tile<kKeys>(block, 0, num_keys, load_keys, [&](const Warp& warp, int tile) {
      const int in_tile = warp.index() * 16 * kM;
      SIXFOLD_UNROLL_BY(1)
      for (int step = 0; step < kKeys; step += kStep) {
        add_keys(warp, states[warp.index()], q, dout, in_tile, keys(tile), values(tile), step, at.row0 + in_tile,
                 tile * kKeys + step);
      }
    });
    block.each_warp([&](const Warp& warp) {
      const GlobalRows<T> rows = tensors.qkv_rows(at, dqkv, 0);
      store_sums(warp, states[warp.index()].dq, rows, at.row0 + warp.index() * 16 * kM, seq_len,
                 [&](int, int, int) { return tensors.scale; });
    });
  }

 private:
  /// Queries beyond the last have lse and delta 0: nothing of them is stored.
  SIXFOLD_DEVICE void start(const Warp& warp, State& state, const HeadTile& at, int query0) const {
    clear(warp, state.dq);
    each_sum_row<kM>(warp, [&](int lane, int m, int half) {
      const int query = query0 + 16 * m + sum_row(lane, 2 * half);
      const bool there = query < tensors.seq_len();
      const int64_t offset = tensors.shape.lse_offset(at.b, at.h, query);
      state.lse2[m][lane][half] = there ? gradients.lse[offset] * kLog2E : 0;
      state.delta[m][lane][half] = there ? gradients.delta[offset] : 0;
    });
  }

  /// dq += dS K of kStep keys, from key0 on, in rows k0 .. of their tile.
  SIXFOLD_DEVICE void add_keys(const Warp& warp, State& state, const QueryTile& q, const QueryTile& dout, int q0,
                               const KeyTile& k, const KeyTile& v, int k0, int query0, int key0) const {
    if (key0 >= query0 + 16 * kM) return;  // after all of the warp's queries
    Sums<kM, kStep / 8> scores, dscores;
    clear(warp, scores);
    clear(warp, dscores);
    add_rows_by_rows(warp, scores, q, q0, k, k0);
    add_rows_by_rows(warp, dscores, dout, q0, v, k0);
    const float to_log2 = tensors.scale * kLog2E;
    each_sum<decltype(scores)>(warp, [&](int lane, int m, int n, int i) {
      const bool visible = key0 + 8 * n + sum_column(lane, i) <= query0 + 16 * m + sum_row(lane, i);
      const float p = probability(scores.part[m][n][lane][i], to_log2, state.lse2[m][lane][i / 2], visible);
      float& ds = dscores.part[m][n][lane][i];
      ds = p * (ds - state.delta[m][lane][i / 2]);
    });
    add_sums_by_rows(warp, state.dq, dscores, k, k0);
  }
};

template <typename T, int kHeadDim>
struct FlashKeyGradient {
  static constexpr bool kTensorCores = std::is_same_v<T, BF16>;
  static constexpr int kWarps = kTensorCores || kHeadDim <= 64 ? 4 : 2, kBlocksPerSm = kTensorCores ? 2 : 1;
  static constexpr int kM = kTensorCores && kHeadDim <= 64 ? 2 : 1, kKeys = 16 * kM * kWarps;
  static constexpr int kQueries = sizeof(T) * kHeadDim <= 128 ? 64 : kHeadDim <= 64 || kTensorCores ? 32 : 16;
  static constexpr int kStep = 16;  // queries whose scores are in registers
  using KeyTile = SharedTile<T, kKeys, kHeadDim>;
  using QueryTile = SharedTile<T, kQueries, kHeadDim>;
  static constexpr size_t kSharedBytes = 2 * KeyTile::kBytes + 4 * QueryTile::kBytes + sizeof(float) * 4 * kQueries;
  static_assert(kSharedBytes <= kMaxSharedBytes);

  struct State {
    Sums<kM, kHeadDim / 8> dk, dv;
  };
  /// What is in shared memory of a tile of queries.
  struct Queries {
    QueryTile q, dout;
    float* lse;
    float* delta;
  };

  FlashTensors<T> tensors;
  FlashGradients<T> gradients;
  T* dqkv;

  template <typename Block>
  SIXFOLD_DEVICE void operator()(Block& block, int64_t index) const {
    const HeadTile at = tensors.template tile<Order::First>(index, kKeys);
    const int seq_len = tensors.seq_len(), first = at.row0 / kQueries;  // tile of queries that sees the first key
    T* shared = reinterpret_cast<T*>(block.shared());
    const KeyTile k{shared}, v{shared + KeyTile::kSize};
    const auto queries = [&](int tile) {
      T* tiles = shared + 2 * KeyTile::kSize + tile % 2 * 2 * QueryTile::kSize;
      float* rows =
          reinterpret_cast<float*>(shared + 2 * KeyTile::kSize + 4 * QueryTile::kSize) + tile % 2 * 2 * kQueries;
      return Queries{{tiles}, {tiles + QueryTile::kSize}, rows, rows + kQueries};
    };
    const auto load_queries = [&](int tile) {
      const Queries to = queries(tile);
      load_tile(block, to.q, tensors.qkv_rows(at, tensors.qkv, 0), tile * kQueries, seq_len);
      load_tile(block, to.dout, tensors.out_rows(at, gradients.dout), tile * kQueries, seq_len);
      const int64_t offset = tensors.shape.lse_offset(at.b, at.h, 0);
      load_floats(block, to.lse, gradients.lse + offset, tile * kQueries, seq_len);
      load_floats(block, to.delta, gradients.delta + offset, tile * kQueries, seq_len);
    };

    PerWarp<kWarps, State> states;
    block.each_warp([&](const Warp& warp) {
      clear(warp, states[warp.index()].dk);
      clear(warp, states[warp.index()].dv);
    });
    load_tile(block, k, tensors.qkv_rows(at, tensors.qkv, 1), at.row0, seq_len);
    load_tile(block, v, tensors.qkv_rows(at, tensors.qkv, 2), at.row0, seq_len);
    for_each_tile<kQueries>(block, first, seq_len, load_queries, [&](const Warp& warp, int tile) {
      const int in_tile = warp.index() * 16 * kM;
      SIXFOLD_UNROLL_BY(1)
      for (int step = 0; step < kQueries; step += kStep) {
        add_queries(warp, states[warp.index()], k, v, in_tile, queries(tile), step, at.row0 + in_tile,
                    tile * kQueries + step);
      }
    });
    block.each_warp([&](const Warp& warp) {
      const int key0 = at.row0 + warp.index() * 16 * kM;
      store_sums(warp, states[warp.index()].dk, tensors.qkv_rows(at, dqkv, 1), key0, seq_len,
                 [&](int, int, int) { return tensors.scale; });
      store_sums(warp, states[warp.index()].dv, tensors.qkv_rows(at, dqkv, 2), key0, seq_len,
                 [](int, int, int) { return 1.0f; });
    });
  }

 private:
  /// Values of queries from query0 on; 0 beyond the last, whose rows of q and dout are 0 too: they add 0 to all.
  template <typename Block>
  SIXFOLD_DEVICE void load_floats(Block& block, float* to, const float* from, int query0, int num_queries) const {
    static_assert(kQueries <= Block::kThreads);
    block.each_thread([&](int thread) {
      if (thread >= kQueries) return;
      const bool there = query0 + thread < num_queries;
      block.copy_async_4(thread, to + thread, there ? from + query0 + thread : from, there ? 4 : 0);
    });
  }

  /// dv += P^T dO, dk += dS^T Q of kStep queries, from query0 on, in rows q0 .. of their tile.
  SIXFOLD_DEVICE void add_queries(const Warp& warp, State& state, const KeyTile& k, const KeyTile& v, int k0,
                                  const Queries& queries, int q0, int key0, int query0) const {
    if (query0 + kStep <= key0) return;  // before all of the warp's keys
    Sums<kM, kStep / 8> scores, dscores;
    clear(warp, scores);
    add_rows_by_rows(warp, scores, k, k0, queries.q, q0);
    const float to_log2 = tensors.scale * kLog2E;
    warp.each_lane([&](int lane) {
      SIXFOLD_UNROLL
      for (int n = 0; n < kStep / 8; ++n) {
        const int column = 8 * n + sum_column(lane, 0);
        float lse[2];
        warp.load(queries.lse + q0 + column, lse);
        SIXFOLD_UNROLL
        for (int m = 0; m < kM; ++m) {
          SIXFOLD_UNROLL
          for (int i = 0; i < 4; ++i) {
            const bool visible = key0 + 16 * m + sum_row(lane, i) <= query0 + column + i % 2;
            float& p = scores.part[m][n][lane][i];
            p = probability(p, to_log2, lse[i % 2] * kLog2E, visible);
          }
        }
      }
    });
    add_sums_by_rows(warp, state.dv, scores, queries.dout, q0);
    clear(warp, dscores);
    add_rows_by_rows(warp, dscores, v, k0, queries.dout, q0);
    warp.each_lane([&](int lane) {
      SIXFOLD_UNROLL
      for (int n = 0; n < kStep / 8; ++n) {
        float delta[2];
        warp.load(queries.delta + q0 + 8 * n + sum_column(lane, 0), delta);
        SIXFOLD_UNROLL
        for (int m = 0; m < kM; ++m) {
          SIXFOLD_UNROLL
          for (int i = 0; i < 4; ++i) {
            float& ds = dscores.part[m][n][lane][i];
            ds = scores.part[m][n][lane][i] * (ds - delta[i % 2]);
          }
        }
      }
    });
    add_sums_by_rows(warp, state.dk, dscores, queries.q, q0);
  }
};

}  // namespace

void attention_flash_backward(Context& context, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                              const Tensor& lse, int64_t seq_len, int64_t num_heads, const Tensor& dqkv) {
  const AttentionShape s(out, seq_len, num_heads);
  const int64_t rows = s.num_rows * s.seq_len;
  const float* lse_data = checked<float>(lse, {s.num_rows, s.num_heads, s.seq_len}, "attention lse");
  const auto delta_bytes = static_cast<size_t>(attention_backward_temporaries(rows, s.num_heads));
  const std::shared_ptr<void> delta = context.memory.allocate(delta_bytes, Category::Activations);
  dispatch_float(qkv.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* dout_data = checked<T>(dout, {rows, s.num_channels()}, "attention dout");
    const T* in = checked<T>(qkv, {rows, s.qkv_stride()}, "attention qkv");
    const T* out_data = checked<T>(out, {rows, s.num_channels()}, "attention out");
    T* din = checked<T>(dqkv, {rows, s.qkv_stride()}, "attention dqkv");
    const FlashTensors<T> tensors{s, in, takes_chunks<T>(s.head_dim, {in, dout_data, din}), s.scale()};
    const FlashGradients<T> gradients{dout_data, lse_data, static_cast<const float*>(delta.get())};
    for_each_row<RowBy::Warp>(context, rows * s.num_heads,
                              FlashDelta<T>{s, out_data, dout_data, static_cast<float*>(delta.get())});
    dispatch_head_dim(s.head_dim, [&](auto head_dim) {
      using Queries = FlashQueryGradient<T, decltype(head_dim)::value>;
      using Keys = FlashKeyGradient<T, decltype(head_dim)::value>;
      for_each_block(context, num_head_tiles(s, Queries::kQueries), Queries{tensors, gradients, din});
      for_each_block(context, num_head_tiles(s, Keys::kKeys), Keys{tensors, gradients, din});
    });
  });
}

}  // namespace sixfold::kernels::cuda
