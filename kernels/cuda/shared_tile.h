// Tiles of matrices in shared memory.
#pragma once

#include <bit>

#include "kernels/cuda/warp_block.h"

namespace sixfold::kernels::cuda {

/// kRows x kColumns elements, and 16 bytes of padding a row. A row is then an odd number of chunks of 16 bytes, so
/// eight neighbouring rows hold their chunk c in eight different groups of four banks: ldmatrix, which reads eight rows
/// at a time, has no bank conflicts. (Swizzled chunks would save the padding, but every address would take a register,
/// where it is now a constant away from that of the tile.)
template <typename T, int kRows_, int kColumns_>
struct SharedTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kPerChunk = 16 / sizeof(T);
  static constexpr int kChunks = kColumns / kPerChunk;  // of a row
  static constexpr int kStride = kColumns + kPerChunk;
  static constexpr int kSize = kRows * kStride;
  static constexpr size_t kBytes = sizeof(T) * kSize;
  static_assert(kChunks % 2 == 0);

  T* data;

  SIXFOLD_DEVICE T* chunk(int row, int c) const { return data + offset(row, c); }
  SIXFOLD_HD static constexpr int offset(int rows, int chunks) { return rows * kStride + chunks * kPerChunk; }
};

/// Rows of a matrix in global memory from which tiles are loaded: element (r, c) is data[r * stride + c].
template <typename T>
struct GlobalRows {
  T* data;
  int64_t stride;
  int num_columns;
  bool aligned;  // each row starts on 16 bytes, and num_columns fill whole chunks
};

/// Issues the copy of rows row0 .. row0 + kRows - 1 into the tile. Rows from `num_rows` on, and columns beyond those
/// of the matrix, become 0. In place after block.await_copies() and block.sync().
template <typename Block, typename T, int kRows, int kColumns>
SIXFOLD_DEVICE void load_tile(Block& block, const SharedTile<T, kRows, kColumns>& tile, const GlobalRows<const T>& rows,
                              int row0, int num_rows) {
  using Tile = SharedTile<T, kRows, kColumns>;
  static_assert(Block::kThreads % Tile::kChunks == 0);
  const auto each_chunk = [&](int thread, const auto& body) {  // body(row, chunk, source address or nullptr)
    const int c = thread % Tile::kChunks, column = c * Tile::kPerChunk;
    const T* from = rows.data + (row0 + thread / Tile::kChunks) * rows.stride + column;
    SIXFOLD_UNROLL_BY(1)
    for (int row = thread / Tile::kChunks; row < kRows; row += Block::kThreads / Tile::kChunks) {
      body(row, c, row0 + row < num_rows && column < rows.num_columns ? from : nullptr);
      from += Block::kThreads / Tile::kChunks * rows.stride;
    }
  };
  if (rows.aligned) {
    block.each_thread([&](int thread) {
      each_chunk(thread, [&](int row, int c, const T* from) {
        block.copy_async_16(thread, tile.chunk(row, c), from != nullptr ? from : rows.data, from != nullptr ? 16 : 0);
      });
    });
  } else {
    block.each_thread([&](int thread) {
      each_chunk(thread, [&](int row, int c, const T* from) {
        Pack<T, Tile::kPerChunk> pack = {};
        for (int k = 0; from != nullptr && k < Tile::kPerChunk; ++k) {
          if (c * Tile::kPerChunk + k < rows.num_columns) pack.element[k] = from[k];
        }
        block.store_16(thread, tile.chunk(row, c), std::bit_cast<Chunk>(pack));
      });
    });
  }
}

}  // namespace sixfold::kernels::cuda
