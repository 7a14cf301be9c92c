// The conjugate pairs on whole numbers, so that every sum is exact: where each element goes, worked out in plain loops
// over the global tensor; the adjoint identity <f(x), y> = <x, f*(y)>; and what is sent.
#include "runtime/parallel/region_ops.h"

#include <numeric>

#include "runtime/core/rng.h"
#include "tests/toy_model.h"

namespace sixfold::parallel {
namespace {

constexpr int64_t kSequences = 3, kTensors = 3;  // B, and q, k, v
constexpr int64_t kPositions = 5, kWidth = 7;    // of a rank: T / N, C / N

/// Whole numbers from -8 to 8.
Tensor random(Memory& memory, Shape shape, uint64_t key) {
  const Tensor x = Tensor::empty(std::move(shape), DType::F32, memory, Category::Activations);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(philox_hash(key, static_cast<uint64_t>(i)) % 17) - 8;
  }
  return x;
}
Tensor copy(Memory& memory, const Tensor& x) {
  const Tensor y = Tensor::empty(x.shape(), DType::F32, memory, Category::Activations);
  y.copy_from(x);
  return y;
}
double dot(const Tensor& a, const Tensor& b) {
  SIXFOLD_CHECK(a.shape() == b.shape(), to_string(a.shape()) + " and " + to_string(b.shape()));
  return std::inner_product(a.data<float>(), a.data<float>() + a.numel(), b.data<float>(), 0.0);
}

class Regions {
 public:
  explicit Regions(comm::World& ranks, int64_t num_sequences = kSequences)
      : world(ranks),
        n(ranks.size()),
        rank(ranks.rank()),
        context{ranks.memory()},
        region{context, &ranks.group(), "test", num_sequences} {}

  /// Of what all ranks have, or of what each has alike.
  enum class Has { Own, Same };
  Tensor make(Has has, Shape shape, uint64_t key) {
    return random(world.memory(), std::move(shape), key + (has == Has::Own ? static_cast<uint64_t>(rank) : 0));
  }
  /// Of own tensors an inner product over the group is the sum over ranks; of same ones it is that of one rank.
  double sum(double value) {
    int64_t whole = std::llround(value);
    world.group().all_reduce({&whole, 1, DType::I64}, {&whole, 1, DType::I64}, ReduceOp::Sum).wait();
    return static_cast<double>(whole);
  }
  template <typename Forward, typename Backward>
  void expect_adjoint(const char* what, Has in, Shape x_shape, Has out, Forward forward, Backward backward) {
    const Tensor x = make(in, x_shape, 100);
    const Tensor fx = forward(copy(world.memory(), x));
    const Tensor y = make(out, fx.shape(), 200);
    const Tensor back = backward(copy(world.memory(), y));
    const double left = dot(fx, y), right = dot(x, back);
    EXPECT_EQ(out == Has::Own ? sum(left) : left, in == Has::Own ? sum(right) : right) << what << ", " << n << " ranks";
    EXPECT_NE(left, 0) << what;
  }

  comm::World& world;
  const int64_t n, rank;
  kernels::Context context;
  const Region region;
};
using Has = Regions::Has;

TEST(RegionOps, PairsAreAdjoint) {
  for (int n = 1; n <= 5; ++n) {
    test::run_ranks(n, [](comm::World& world) {
      for (int64_t b : {int64_t{1}, kSequences}) {
        Regions r(world, b);
        const Shape whole = {b * kPositions * r.n, kWidth * r.n}, positions = {b * kPositions, kWidth * r.n},
                    channels = {b * kPositions * r.n, kWidth};
        const Region& region = r.region;
        const auto pair = [&](const char* what, Has in, const Shape& shape, Has out, auto f, auto g) {
          r.expect_adjoint(what, in, shape, out, f, g);
        };
        pair(
            "copy", Has::Same, whole, Has::Own, [&](const Tensor& x) { return CopyToRanks::forward(region, x); },
            [&](const Tensor& y) { return CopyToRanks::backward(region, y).wait(); });
        pair(
            "sum", Has::Own, whole, Has::Same, [&](const Tensor& x) { return SumOverRanks::forward(region, x).wait(); },
            [&](const Tensor& y) { return SumOverRanks::backward(region, y); });
        pair(
            "gather channels", Has::Own, channels, Has::Same,
            [&](const Tensor& x) { return GatherChannels::forward(region, x).wait(); },
            [&](const Tensor& y) { return GatherChannels::backward(region, y); });
        pair(
            "slice channels", Has::Same, whole, Has::Own,
            [&](const Tensor& x) { return SliceChannels::forward(region, x); },
            [&](const Tensor& y) { return SliceChannels::backward(region, y).wait(); });
        pair(
            "gather positions", Has::Own, positions, Has::Own,
            [&](const Tensor& x) { return GatherPositions::forward(region, x).wait(); },
            [&](const Tensor& y) { return GatherPositions::backward(region, y).wait(); });
        pair(
            "scatter positions", Has::Own, whole, Has::Own,
            [&](const Tensor& x) { return ScatterPositions::forward(region, x).wait(); },
            [&](const Tensor& y) { return ScatterPositions::backward(region, y).wait(); });
        for (int64_t tensors : {int64_t{1}, kTensors}) {
          const Shape by_positions = {b * kPositions, tensors * kWidth * r.n};
          const Shape by_channels = {b * kPositions * r.n, tensors * kWidth};
          pair(
              "to channels", Has::Own, by_positions, Has::Own,
              [&](const Tensor& x) { return ToChannels::forward(region, x, tensors).wait(); },
              [&](const Tensor& y) { return ToChannels::backward(region, y, tensors).wait(); });
          pair(
              "to positions", Has::Own, by_channels, Has::Own,
              [&](const Tensor& x) { return ToPositions::forward(region, x, tensors).wait(); },
              [&](const Tensor& y) { return ToPositions::backward(region, y, tensors).wait(); });
        }
      }
    });
  }
}

/// A number for each element of a global tensor, of sequence b, position t, tensor p, channel c.
float element(int64_t b, int64_t t, int64_t p, int64_t c) {
  return static_cast<float>(((b * 64 + t) * 8 + p) * 64 + c);
}

/// The rows of positions [begin, begin + count) and channels [first, first + width) of each of `tensors` tensors.
Tensor cut(Memory& memory, int64_t begin, int64_t count, int64_t tensors, int64_t first, int64_t width) {
  const Tensor x = Tensor::empty({kSequences * count, tensors * width}, DType::F32, memory, Category::Other);
  float* out = x.data<float>();
  for (int64_t b = 0; b < kSequences; ++b) {
    for (int64_t t = begin; t < begin + count; ++t) {
      for (int64_t p = 0; p < tensors; ++p) {
        for (int64_t c = first; c < first + width; ++c) *out++ = element(b, t, p, c);
      }
    }
  }
  return x;
}

void expect_same(const Tensor& actual, const Tensor& expected, float factor = 1) {
  ASSERT_EQ(actual.shape(), expected.shape());
  for (int64_t i = 0; i < actual.numel(); ++i) {
    ASSERT_EQ(actual.data<float>()[i], factor * expected.data<float>()[i]) << "element " << i;
  }
}

TEST(RegionOps, ElementsGoWhereTheyBelong) {
  for (int n = 1; n <= 4; ++n) {
    test::run_ranks(n, [](comm::World& world) {
      Regions r(world);
      Memory& memory = world.memory();
      const int64_t all_t = kPositions * r.n, all_c = kWidth * r.n, own_t = kPositions * r.rank,
                    own_c = kWidth * r.rank;
      const Tensor whole = cut(memory, 0, all_t, 1, 0, all_c);
      const Tensor positions = cut(memory, own_t, kPositions, 1, 0, all_c);
      const Tensor channels = cut(memory, 0, all_t, 1, own_c, kWidth);
      const auto n_times = static_cast<float>(r.n);
      expect_same(SumOverRanks::forward(r.region, copy(memory, whole)).wait(), whole, n_times);
      expect_same(GatherChannels::forward(r.region, channels).wait(), whole);
      expect_same(SliceChannels::forward(r.region, whole), channels);
      expect_same(GatherPositions::forward(r.region, positions).wait(), whole);
      expect_same(ScatterPositions::forward(r.region, copy(memory, whole)).wait(), positions, n_times);
      for (int64_t p : {int64_t{1}, kTensors}) {
        const Tensor by_positions = cut(memory, own_t, kPositions, p, 0, all_c);
        const Tensor by_channels = cut(memory, 0, all_t, p, own_c, kWidth);
        expect_same(ToChannels::forward(r.region, by_positions, p).wait(), by_channels);
        expect_same(ToPositions::forward(r.region, by_channels, p).wait(), by_positions);
      }
    });
  }
}

TEST(RegionOps, SendsWhatTheFormulasSay) {
  for (int n = 2; n <= 4; ++n) {
    comm::WorldOptions options;
    options.algorithm = comm::Algorithm::Ring;
    test::run_ranks(
        n,
        [](comm::World& world) {
          Regions r(world);
          const auto named = [&](const char* tag) { return Region{r.context, &world.group(), tag, kSequences}; };
          const int64_t all_t = kPositions * r.n, all_c = kWidth * r.n;
          const Tensor whole = cut(world.memory(), 0, all_t, 1, 0, all_c);
          const Tensor positions = cut(world.memory(), 0, kPositions, 1, 0, all_c);
          SumOverRanks::forward(named("sum"), whole).wait();
          GatherPositions::forward(named("gather"), positions).wait();
          ScatterPositions::forward(named("scatter"), whole).wait();
          ToChannels::forward(named("exchange"), positions, 1).wait();
          const uint64_t bytes = whole.bytes(), ranks = static_cast<uint64_t>(r.n);
          EXPECT_EQ(total_of(world, "sum").sent_bytes, 2 * (ranks - 1) * bytes / ranks);
          EXPECT_EQ(total_of(world, "gather").sent_bytes, (ranks - 1) * bytes / ranks);
          EXPECT_EQ(total_of(world, "scatter").sent_bytes, (ranks - 1) * bytes / ranks);
          EXPECT_EQ(total_of(world, "exchange").sent_bytes, (ranks - 1) * bytes / ranks / ranks);
        },
        options);
  }
}

TEST(RegionOps, WhatDoesNotDivideIsACheck) {
  test::run_ranks(2, [](comm::World& world) {
    Regions r(world);
    const Tensor odd = random(world.memory(), {kSequences * 3, 5}, 1);
    EXPECT_THROW(ScatterPositions::forward(r.region, odd), CheckError);
    EXPECT_THROW(SliceChannels::forward(r.region, odd), CheckError);
    EXPECT_THROW(ToChannels::forward(r.region, odd, 1), CheckError);
    EXPECT_THROW(ToPositions::forward(r.region, odd, 1), CheckError);
  });
}

TEST(RegionOps, OnOneRankAllAreTheIdentity) {
  Memory memory;
  kernels::Context context{memory};
  const Region alone{context, nullptr, "alone", 2};
  const Tensor x = random(memory, {6, 9}, 1);
  for (const Tensor& y : {CopyToRanks::forward(alone, x), SumOverRanks::forward(alone, x).wait(),
                          GatherPositions::forward(alone, x).wait(), ScatterPositions::backward(alone, x).wait(),
                          ToChannels::forward(alone, x, 3).wait(), SliceChannels::forward(alone, x)}) {
    EXPECT_EQ(y.raw(), x.raw());
  }
}

}  // namespace
}  // namespace sixfold::parallel
