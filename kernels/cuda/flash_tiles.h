// What the kernels of flash attention share. Source: Dao, "FlashAttention-2", 2023, algorithms 1 and 2.
//
// A block owns a tile of rows, queries (forward, gradient of queries) or keys (gradient of keys and values), 16 kM a
// warp, and goes through the other side's tiles, of which the next is on its way into shared memory while one is worked
// on. Scores live in registers only. In backward both kernels compute them again, 7 products of tiles in place of 5:
// in return no gradient is added to by two blocks, so nothing needs atomics and the bits are the same every run.
//
// Expected on an H200, not measured, of bf16 forward with D 64: a tile of 64 keys is 16 KB from L2 for 2.1 MFLOP of a
// block, so 300 TFLOP/s ask for 2.3 TB/s of L2. A warp of 32 queries (kM = 2) reads 20 KB of shared memory for 0.52
// MFLOP, which at 128 bytes a clock and SM bounds it by 760 TFLOP/s, 16 queries by 430; the exponentials bound it by
// 950. Hence 32 rows a warp wherever the sums fit into registers, two blocks of 4 warps an SM. In backward the scores
// of 32 or 16 columns at a time are in registers beside the gradients.
#pragma once

#include "kernels/attention_shape.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/tile_products.h"
#include "kernels/vector_math.h"

namespace sixfold::kernels::cuda {

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

/// One head of one sequence, and one tile of its rows.
struct HeadTile {
  int64_t b, h;
  int row0;
};

/// Which tile of a head starts first: the one with most to do.
enum class Order : uint8_t { First, Last };

inline int64_t num_head_tiles(const AttentionShape& shape, int tile_rows) {
  return shape.num_rows * shape.num_heads * ((shape.seq_len + tile_rows - 1) / tile_rows);
}

/// The tensors of one call, and how one head's rows are read from them. D of the tiles is kHeadDim: the channels that a
/// head has less are 0 there.
template <typename T>
struct FlashTensors {
  AttentionShape shape;
  const T* qkv;
  bool aligned;  // whole chunks of 16 bytes, all of them
  float scale;

  /// What block `index` of a launch works on: tiles of a head side by side, so that what they read meets in L2.
  template <Order order>
  SIXFOLD_DEVICE HeadTile tile(int64_t index, int tile_rows) const {
    const int64_t num_tiles = (shape.seq_len + tile_rows - 1) / tile_rows, head = index / num_tiles;
    const int64_t i = index % num_tiles, tile = order == Order::Last ? num_tiles - 1 - i : i;
    return {head / shape.num_heads, head % shape.num_heads, static_cast<int>(tile) * tile_rows};
  }
  SIXFOLD_DEVICE int seq_len() const { return static_cast<int>(shape.seq_len); }
  /// Keys up to the diagonal, of a tile of queries.
  SIXFOLD_DEVICE int num_keys(const HeadTile& at, int num_queries) const {
    return seq_len() < at.row0 + num_queries ? seq_len() : at.row0 + num_queries;
  }
  /// Rows of q (part 0), k (1) or v (2), in qkv or in its gradient.
  template <typename U>
  SIXFOLD_DEVICE GlobalRows<U> qkv_rows(const HeadTile& at, U* data, int part) const {
    return {data + shape.qkv_offset(part, at.b, at.h, 0), shape.qkv_stride(), static_cast<int>(shape.head_dim),
            aligned};
  }
  /// The same of out, or of its gradient.
  template <typename U>
  SIXFOLD_DEVICE GlobalRows<U> out_rows(const HeadTile& at, U* out) const {
    return {out + shape.out_offset(at.b, at.h, 0), shape.num_channels(), static_cast<int>(shape.head_dim), aligned};
  }
  /// Issues the copies of a tile of keys and of their values.
  template <typename Block, typename Tile>
  SIXFOLD_DEVICE void load_keys(Block& block, const HeadTile& at, int tile, const Tile& keys,
                                const Tile& values) const {
    load_tile(block, keys, qkv_rows(at, qkv, 1), tile * Tile::kRows, seq_len());
    load_tile(block, values, qkv_rows(at, qkv, 2), tile * Tile::kRows, seq_len());
  }
};

/// work(warp, tile), of all warps, for the tiles of kRows rows from `first` on that begin before num_rows. load(tile)
/// issues a tile's copies into one of two places, in turn: the next tile's are under way while one is worked on.
template <int kRows, typename Block, typename Load, typename Work>
SIXFOLD_DEVICE void for_each_tile(Block& block, int first, int num_rows, const Load& load, const Work& work) {
  load(first);
  SIXFOLD_UNROLL_BY(1)
  for (int tile = first; tile * kRows < num_rows; ++tile) {
    block.await_copies();
    block.sync();  // the tile is there for all, and the one before has been worked on by all
    if ((tile + 1) * kRows < num_rows) load(tile + 1);
    block.each_warp([&](const Warp& warp) { work(warp, tile); });
  }
}

/// Whether rows of `head_dim` elements T from these addresses on are whole chunks of 16 bytes.
template <typename T>
bool takes_chunks(int64_t head_dim, std::initializer_list<const void*> addresses) {
  return head_dim * static_cast<int64_t>(sizeof(T)) % 16 == 0 && takes_packs(0, addresses);
}

/// f(std::integral_constant<int, D>{}) for the smallest D of tiles that holds a head. Throws CheckError where none
/// does.
template <typename F>
void dispatch_head_dim(int64_t head_dim, F&& f) {
  SIXFOLD_CHECK(head_dim <= kFlashMaxHeadDim, "channels of a head in flash attention");
  if (head_dim <= 32) {
    f(std::integral_constant<int, 32>{});
  } else if (head_dim <= 64) {
    f(std::integral_constant<int, 64>{});
  } else {
    f(std::integral_constant<int, static_cast<int>(kFlashMaxHeadDim)>{});
  }
}

/// rows[row0 + ..] = sums * factor(lane, m, half of the 16 rows), rounded; rows from num_rows on are not there.
template <typename T, int kM, int kN, typename Factor>
SIXFOLD_DEVICE void store_sums(const Warp& warp, const Sums<kM, kN>& sums, const GlobalRows<T>& rows, int row0,
                               int num_rows, const Factor& factor) {
  each_sum_row<kM>(warp, [&](int lane, int m, int half) {
    const int row = row0 + 16 * m + sum_row(lane, 2 * half);
    if (row >= num_rows) return;
    const float times = factor(lane, m, half);
    T* to = rows.data + row * rows.stride;
    SIXFOLD_UNROLL
    for (int n = 0; n < kN; ++n) {
      const int column = 8 * n + sum_column(lane, 0);
      const float(&part)[4] = sums.part[m][n][lane];
      const float pair[2] = {part[2 * half] * times, part[2 * half + 1] * times};
      if (rows.aligned) {
        if (column < rows.num_columns) store(to + column, pair);
      } else {
        if (column < rows.num_columns) to[column] = static_cast<T>(pair[0]);
        if (column + 1 < rows.num_columns) to[column + 1] = static_cast<T>(pair[1]);
      }
    }
  });
}

}  // namespace sixfold::kernels::cuda
