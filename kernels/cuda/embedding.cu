#include <limits>
#include <type_traits>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/token_groups.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cuda {

namespace {

template <typename T, int n>
struct TokenForward {
  const int32_t* tokens;
  const T* weight;
  int64_t vocab_begin, vocab, channels;
  T* y;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    const int64_t id = tokens[row] - vocab_begin;
    const bool held = id >= 0 && id < vocab;
    for_channels<n>(lanes, channels, [&](int64_t c) {
      float values[n] = {};
      if (held) load(weight + id * channels + c, values);
      store(y + row * channels + c, values);
    });
  }
};

/// sum += p(0)[0 .. n), p(1)[0 .. n), .., one after the other, with some of them on their way at a time.
template <int n, typename Address>
SIXFOLD_DEVICE void add_in_order(int64_t count, const Address& p, float (&sum)[n]) {
  constexpr int kAhead = 8;
  int64_t i = 0;
  for (; i + kAhead <= count; i += kAhead) {
    float values[kAhead][n];
    SIXFOLD_UNROLL
    for (int a = 0; a < kAhead; ++a) load(p(i + a), values[a]);
    SIXFOLD_UNROLL
    for (int a = 0; a < kAhead; ++a) {
      SIXFOLD_UNROLL
      for (int k = 0; k < n; ++k) sum[k] += values[a][k];
    }
  }
  for (; i < count; ++i) {
    float values[n];
    load(p(i), values);
    SIXFOLD_UNROLL
    for (int k = 0; k < n; ++k) sum[k] += values[k];
  }
}

/// A token and kSliceChannels of its channels are one row of work: a frequent token keeps several warps busy.
inline constexpr int64_t kSliceChannels = 128;

template <typename T, int n>
struct TokenBackward {
  const int32_t* counts;  // as in TokenGroups
  const int32_t* begins;
  const int32_t* rows;
  const T* dy;
  int64_t channels, num_slices;
  float* dweight;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t work) const {
    const int64_t id = work / num_slices, begin = work % num_slices * kSliceChannels;
    const int64_t count = counts[id];
    if (count == 0) return;
    const int32_t* group = rows + begins[id];
    const int64_t length = channels - begin < kSliceChannels ? channels - begin : kSliceChannels;
    for_channels<n>(lanes, length, [&](int64_t i) {
      const int64_t c = begin + i;
      float sum[n];
      load(dweight + id * channels + c, sum);
      add_in_order(
          count, [&](int64_t k) { return dy + group[k] * channels + c; }, sum);
      store(dweight + id * channels + c, sum);
    });
  }
};

template <typename T, int n>
struct PositionForward {
  const T* weight;  // of the first position here
  uint32_t seq_len;
  int64_t channels;
  T* y;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    T* out = y + row * channels;
    const T* position = weight + int64_t{static_cast<uint32_t>(row) % seq_len} * channels;
    for_channels<n>(lanes, channels, [&](int64_t c) {
      float added[n], sum[n];
      load(position + c, added);
      load(out + c, sum);
      SIXFOLD_UNROLL
      for (int k = 0; k < n; ++k) sum[k] += added[k];
      store(out + c, sum);
    });
  }
};

template <typename T, int n>
struct PositionBackward {
  const T* dy;
  int64_t num_rows, seq_len, channels;
  float* dweight;  // of the first position here
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t t) const {
    for_channels<n>(lanes, channels, [&](int64_t c) {
      float sum[n];
      load(dweight + t * channels + c, sum);
      add_in_order(
          num_rows, [&](int64_t b) { return dy + (b * seq_len + t) * channels + c; }, sum);
      store(dweight + t * channels + c, sum);
    });
  }
};

/// f(a constant kPack or 1): neighbours that a thread may take in rows of `channels` elements from these addresses on.
template <typename F>
void dispatch_pack(int64_t channels, std::initializer_list<const void*> addresses, F&& f) {
  if (takes_packs(channels, addresses)) {
    f(std::integral_constant<int, kPack>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

void check_positions(const TokenRows& rows, const Tensor& table) {
  SIXFOLD_CHECK_LE(int64_t{0}, rows.seq_offset, "negative position");
  SIXFOLD_CHECK_LE(rows.seq_offset + rows.seq_len, table.dim(0), "more positions than the table has");
}

}  // namespace

void token_embedding_forward(Context& context, const Tensor& tokens, const Tensor& weight, int64_t vocab_begin,
                             const Tensor& y) {
  const int64_t rows = checked_dim(y, 2, 0, "embedding y"), channels = y.dim(1);
  const int64_t vocab = checked_dim(weight, 2, 0, "embedding weight");
  const int32_t* ids = checked<int32_t>(tokens, {rows}, "embedding tokens");
  dispatch_float(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* table = checked<T>(weight, {vocab, channels}, "embedding weight");
    T* out = checked<T>(y, {rows, channels}, "embedding y");
    dispatch_pack(channels, {table, out}, [&](auto n) {
      for_each_row<RowBy::Warp>(context, rows, TokenForward<T, n>{ids, table, vocab_begin, vocab, channels, out});
    });
  });
}

void token_embedding_backward(Context& context, const Tensor& tokens, const Tensor& dy, int64_t vocab_begin,
                              const Tensor& dweight) {
  const int64_t rows = checked_dim(dy, 2, 0, "embedding dy"), channels = dy.dim(1);
  const int64_t vocab = checked_dim(dweight, 2, 0, "embedding dweight");
  checked<int32_t>(tokens, {rows}, "embedding tokens");
  float* out = checked<float>(dweight, {vocab, channels}, "embedding dweight");
  const TokenGroups groups = group_by_token(context, tokens, vocab_begin, vocab);
  const int64_t num_slices = (channels + kSliceChannels - 1) / kSliceChannels;
  dispatch_float(dy.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* gradient = checked<T>(dy, {rows, channels}, "embedding dy");
    dispatch_pack(channels, {gradient, out}, [&](auto n) {
      for_each_row<RowBy::Warp>(
          context, vocab * num_slices,
          TokenBackward<T, n>{groups.counts.device_data<int32_t>(), groups.begins.device_data<int32_t>(),
                              groups.rows.device_data<int32_t>(), gradient, channels, num_slices, out});
    });
  });
}

void position_embedding_forward(Context& context, const TokenRows& rows, const Tensor& weight, const Tensor& y) {
  const int64_t num_rows = rows.num_rows * rows.seq_len, channels = checked_dim(weight, 2, 1, "position weight");
  check_positions(rows, weight);
  SIXFOLD_CHECK_LE(num_rows, int64_t{std::numeric_limits<uint32_t>::max()}, "too many rows");
  const auto seq_len = static_cast<uint32_t>(rows.seq_len);
  dispatch_float(y.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* table = checked<T>(weight, {weight.dim(0), channels}, "position weight") + rows.seq_offset * channels;
    T* out = checked<T>(y, {num_rows, channels}, "position y");
    dispatch_pack(channels, {table, out}, [&](auto n) {
      for_each_row<RowBy::Warp>(context, num_rows, PositionForward<T, n>{table, seq_len, channels, out});
    });
  });
}

void position_embedding_backward(Context& context, const TokenRows& rows, const Tensor& dy, const Tensor& dweight) {
  const int64_t num_rows = rows.num_rows * rows.seq_len, channels = checked_dim(dweight, 2, 1, "position dweight");
  check_positions(rows, dweight);
  float* out = checked<float>(dweight, {dweight.dim(0), channels}, "position dweight") + rows.seq_offset * channels;
  dispatch_float(dy.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* gradient = checked<T>(dy, {num_rows, channels}, "position dy");
    dispatch_pack(channels, {gradient, out}, [&](auto n) {
      // A block a position: there are fewer positions than rows, and each has all rows to add.
      for_each_row<RowBy::Block>(context, rows.seq_len,
                                 PositionBackward<T, n>{gradient, rows.num_rows, rows.seq_len, channels, out});
    });
  });
}

}  // namespace sixfold::kernels::cuda
