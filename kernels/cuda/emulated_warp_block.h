// warp_block.h on the CPU, for tests: 32 lanes a warp, each with its registers, and what the PTX ISA says of ldmatrix
// and mma, written down independently of device/mma.cuh.
//
// Shared memory starts as NaN. An asynchronous copy leaves NaN until it is awaited. Between two barriers, what one warp
// writes no other may read or write, else CheckError: a forgotten barrier is found although warps run one after the
// other here.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/launch.h"
#include "runtime/core/error.h"

namespace sixfold::kernels::cuda {

inline constexpr int kWarpSize = 32;

struct alignas(16) Chunk {
  uint32_t word[4];
};

template <typename U>
struct PerLane {
  U value[kWarpSize];
  U& operator[](int lane) { return value[lane]; }
  const U& operator[](int lane) const { return value[lane]; }
};

template <int kWarps, typename U>
struct PerWarp {
  U value[kWarps];
  U& operator[](int warp) { return value[warp]; }
};

/// A block's shared memory, and which warps have touched each 16 bytes of it since the last barrier.
class EmulatedShared {
 public:
  explicit EmulatedShared(size_t bytes) : storage_(bytes / sizeof(Chunk) + 8), marks_(bytes / sizeof(Chunk) + 1) {
    const size_t skipped = (128 - reinterpret_cast<uintptr_t>(storage_.data()) % 128) % 128 / sizeof(Chunk);
    data_ = reinterpret_cast<std::byte*>(storage_.data() + skipped);
    bytes_ = bytes;
    std::memset(data_, 0xff, bytes);
  }
  std::byte* data() const { return data_; }

  void barrier() { ++epoch_; }
  void reads(int warp, const void* p, size_t bytes) {
    Mark& mark = mark_of(p, bytes);
    SIXFOLD_CHECK(mark.write_epoch != epoch_ || mark.writer == warp, "a warp reads what another writes");
    mark.reader = mark.read_epoch == epoch_ && mark.reader != warp ? kSeveral : warp;
    mark.read_epoch = epoch_;
  }
  void writes(int warp, const void* p, size_t bytes) {
    Mark& mark = mark_of(p, bytes);
    SIXFOLD_CHECK(mark.write_epoch != epoch_ || mark.writer == warp, "two warps write the same");
    SIXFOLD_CHECK(mark.read_epoch != epoch_ || mark.reader == warp, "a warp writes what another reads");
    mark.writer = warp;
    mark.write_epoch = epoch_;
  }

 private:
  static constexpr int kSeveral = -1;
  struct Mark {
    uint64_t write_epoch = 0, read_epoch = 0;
    int writer = 0, reader = 0;
  };
  Mark& mark_of(const void* p, size_t bytes) {
    const auto offset = static_cast<size_t>(static_cast<const std::byte*>(p) - data_);
    SIXFOLD_CHECK(offset % bytes == 0, "address of shared memory is not aligned");
    SIXFOLD_CHECK(offset < bytes_, "address beyond shared memory");
    return marks_[offset / sizeof(Chunk)];
  }

  std::vector<Chunk> storage_;
  std::vector<Mark> marks_;
  std::byte* data_;
  size_t bytes_;
  uint64_t epoch_ = 1;
};

class Warp {
 public:
  Warp(int index, EmulatedShared& shared) : index_(index), shared_(shared) {}

  int index() const { return index_; }
  template <typename F>
  void each_lane(const F& f) const {
    for (int lane = 0; lane < kWarpSize; ++lane) f(lane);
  }
  template <int n, typename T>
  void load(const T* p, float (&values)[n]) const {
    shared_.reads(index_, p, n * sizeof(T));
    cuda::load(p, values);
  }
  void sum_of_quads(PerLane<float[2]>& x) const {
    combine_quads(x, [](float a, float b) { return a + b; });
  }
  void max_of_quads(PerLane<float[2]>& x) const {
    combine_quads(x, [](float a, float b) { return std::fmax(a, b); });
  }
  void of_quad(const PerLane<float[4]>& c, int i, int j, PerLane<float>& to) const {
    for (int lane = 0; lane < kWarpSize; ++lane) to[lane] = c[lane / 4 * 4 + j][i];
  }
  template <bool transposed>
  void ldmatrix_x4(const PerLane<const void*>& rows, PerLane<uint32_t[4]>& registers) const {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t element[8][8];
      for (int row = 0; row < 8; ++row) {
        const void* from = rows[8 * matrix + row];
        shared_.reads(index_, from, sizeof(Chunk));
        std::memcpy(element[row], from, sizeof(Chunk));
      }
      for (int lane = 0; lane < kWarpSize; ++lane) {
        const int major = lane / 4, minor = 2 * (lane % 4);
        const uint32_t low = transposed ? element[minor][major] : element[major][minor];
        const uint32_t high = transposed ? element[minor + 1][major] : element[major][minor + 1];
        registers[lane][matrix] = low | high << 16;
      }
    }
  }
  /// b: registers b0 and b0 + 1 of each lane.
  void mma_bf16(PerLane<float[4]>& c, const PerLane<uint32_t[4]>& a, const PerLane<uint32_t[4]>& b, int b0) const {
    float left[16][16], right[16][8], sum[16][8] = {};
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const int group = lane / 4, in_group = lane % 4;
      for (int i = 0; i < 8; ++i) {  // elements of A, two a register
        const int row = i / 2 % 2 == 0 ? group : group + 8;
        left[row][in_group * 2 + i % 2 + (i < 4 ? 0 : 8)] = half_of(a[lane][i / 2], i % 2);
      }
      for (int i = 0; i < 4; ++i) {  // elements of B
        right[in_group * 2 + i % 2 + (i < 2 ? 0 : 8)][group] = half_of(b[lane][b0 + i / 2], i % 2);
      }
    }
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 16; ++k)
        for (int j = 0; j < 8; ++j) sum[i][j] += left[i][k] * right[k][j];
    for (int lane = 0; lane < kWarpSize; ++lane)
      for (int i = 0; i < 4; ++i) c[lane][i] += sum[lane / 4 + (i < 2 ? 0 : 8)][lane % 4 * 2 + i % 2];
  }

 private:
  static float half_of(uint32_t word, int half) {
    BF16 value;
    value.bits = static_cast<uint16_t>(word >> (16 * half));
    return static_cast<float>(value);
  }
  template <typename Combine>
  static void combine_quads(PerLane<float[2]>& x, const Combine& combine) {
    for (int quad = 0; quad < kWarpSize; quad += 4)
      for (int i = 0; i < 2; ++i) {
        const float all = combine(combine(x[quad][i], x[quad + 1][i]), combine(x[quad + 2][i], x[quad + 3][i]));
        for (int lane = quad; lane < quad + 4; ++lane) x[lane][i] = all;
      }
  }

  int index_;
  EmulatedShared& shared_;
};

inline uint32_t pack_bf16(float low, float high) {
  return BF16(low).bits | static_cast<uint32_t>(BF16(high).bits) << 16;
}

template <int kWarps_>
class Block {
 public:
  static constexpr int kWarps = kWarps_, kThreads = kWarps * kWarpSize;
  explicit Block(EmulatedShared& shared) : shared_(shared) {}

  std::byte* shared() const { return shared_.data(); }
  template <typename F>
  void each_thread(const F& f) const {
    for (int thread = 0; thread < kThreads; ++thread) f(thread);
  }
  template <typename F>
  void each_warp(const F& f) const {
    for (int warp = 0; warp < kWarps; ++warp) f(Warp(warp, shared_));
  }
  void sync() const { shared_.barrier(); }
  void copy_async_16(int thread, void* to, const void* from, int valid_bytes) {
    copy(thread, to, from, valid_bytes, 16);
  }
  void copy_async_4(int thread, void* to, const void* from, int valid_bytes) { copy(thread, to, from, valid_bytes, 4); }
  void await_copies() {
    for (const Copy& copy : copies_) {
      shared_.writes(copy.warp, copy.to, copy.bytes);
      std::memset(copy.to, 0, copy.bytes);
      if (copy.valid_bytes > 0) std::memcpy(copy.to, copy.from, copy.valid_bytes);
    }
    copies_.clear();
  }
  void store_16(int thread, void* to, const Chunk& chunk) const {
    shared_.writes(thread / kWarpSize, to, sizeof(Chunk));
    std::memcpy(to, &chunk, sizeof(Chunk));
  }

 private:
  struct Copy {
    int warp;
    void* to;
    const void* from;
    size_t valid_bytes, bytes;
  };
  void copy(int thread, void* to, const void* from, int valid_bytes, size_t bytes) {
    SIXFOLD_CHECK(reinterpret_cast<uintptr_t>(from) % bytes == 0, "source of an asynchronous copy is not aligned");
    shared_.writes(thread / kWarpSize, to, bytes);
    std::memset(to, 0xff, bytes);
    copies_.push_back({thread / kWarpSize, to, from, static_cast<size_t>(valid_bytes), bytes});
  }

  EmulatedShared& shared_;
  std::vector<Copy> copies_;
};

template <typename F>
void for_each_block(Context&, int64_t num_blocks, const F& f) {
  for (int64_t index = 0; index < num_blocks; ++index) {
    EmulatedShared shared(F::kSharedBytes);
    Block<F::kWarps> block(shared);
    f(block, index);
  }
}

}  // namespace sixfold::kernels::cuda
