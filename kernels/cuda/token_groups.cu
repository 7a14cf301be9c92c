// A counting sort in four kernels:
//   1. count: each row takes a number within its token's group, first come, first served
//   2. reserve: each token that occurs takes a place for its group, likewise
//   3. fill: rows go to their places
//   4. order: each row counts the smaller rows of its group, which is its place in order
// Which numbers and places 1 and 2 give depends on who comes first; what each group holds after 4 does not.
#include <limits>
#include <utility>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/token_groups.h"
#include "kernels/kernel_table.h"

namespace sixfold::kernels::cuda {

namespace {

/// *p += n; what it was.
SIXFOLD_DEVICE int32_t fetch_add(int32_t* p, int32_t n) {
#ifdef __CUDACC__
  return atomicAdd(p, n);
#else
  return std::exchange(*p, *p + n);
#endif
}

/// Which of the V tokens held here a row has, -1 for another.
struct HeldTokens {
  const int32_t* tokens;
  int64_t vocab_begin, vocab;
  SIXFOLD_DEVICE int64_t operator()(int64_t row) const {
    const int64_t id = tokens[row] - vocab_begin;
    return id >= 0 && id < vocab ? id : -1;
  }
};

struct Count {
  HeldTokens token_of;
  int32_t* counts;
  int32_t* number;  // [R]: of a row within its group
  SIXFOLD_DEVICE void operator()(int64_t row) const {
    const int64_t id = token_of(row);
    if (id >= 0) number[row] = fetch_add(counts + id, 1);
  }
};

struct Reserve {
  const int32_t* counts;
  int32_t* num_grouped;
  int32_t* begins;
  SIXFOLD_DEVICE void operator()(int64_t id) const {
    if (counts[id] > 0) begins[id] = fetch_add(num_grouped, counts[id]);
  }
};

struct Fill {
  HeldTokens token_of;
  const int32_t* begins;
  const int32_t* number;
  int32_t* unordered;
  SIXFOLD_DEVICE void operator()(int64_t row) const {
    const int64_t id = token_of(row);
    if (id >= 0) unordered[begins[id] + number[row]] = static_cast<int32_t>(row);
  }
};

/// Threads follow one another in `unordered`: those of a warp mostly look at the same group.
struct Order {
  HeldTokens token_of;
  const int32_t* counts;
  const int32_t* begins;
  const int32_t* num_grouped;
  const int32_t* unordered;
  int32_t* rows;
  SIXFOLD_DEVICE void operator()(int64_t i) const {
    if (i >= *num_grouped) return;
    const int32_t row = unordered[i];
    const int64_t id = token_of(row);
    const int32_t* group = unordered + begins[id];
    int32_t num_smaller = 0;
    for (int32_t k = 0; k < counts[id]; ++k) num_smaller += group[k] < row;
    rows[begins[id] + num_smaller] = row;
  }
};

}  // namespace

TokenGroups group_by_token(Context& context, const Tensor& tokens, int64_t vocab_begin, int64_t vocab) {
  const int64_t num_rows = checked_dim(tokens, 1, 0, "tokens");
  SIXFOLD_CHECK_LE(num_rows, int64_t{std::numeric_limits<int32_t>::max()}, "too many rows of tokens");
  const HeldTokens token_of{checked<int32_t>(tokens, {num_rows}, "tokens"), vocab_begin, vocab};
  const auto ints = [&](int64_t count) {
    return Tensor::empty({count}, DType::I32, context.memory, Category::Activations);
  };
  const Tensor counters = ints(vocab + 1), unordered = ints(num_rows), number = ints(num_rows);
  TokenGroups groups{counters.slice(0, {vocab}), ints(vocab), ints(num_rows)};
  cuda::zero(context, counters);
  int32_t* const counts = groups.counts.device_data<int32_t>();
  int32_t* const num_grouped = counts + vocab;
  int32_t* const begins = groups.begins.device_data<int32_t>();
  int32_t* const numbers = number.device_data<int32_t>();
  int32_t* const places = unordered.device_data<int32_t>();
  for_each_index(context, num_rows, Count{token_of, counts, numbers});
  for_each_index(context, vocab, Reserve{counts, num_grouped, begins});
  for_each_index(context, num_rows, Fill{token_of, begins, numbers, places});
  for_each_index(context, num_rows,
                 Order{token_of, counts, begins, num_grouped, places, groups.rows.device_data<int32_t>()});
  return groups;
}

}  // namespace sixfold::kernels::cuda
