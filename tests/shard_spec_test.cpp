// How tensor parallelism cuts parameters, and initial values that do not depend on the cut.
#include "runtime/parallel/shard_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "runtime/parallel/init.h"

namespace sixfold::parallel {
namespace {

// ---- ShardSpec -----------------------------------------------------------------------------------------------------

std::vector<int64_t> indices(const ShardSpec& spec, const Shape& full) {
  std::vector<int64_t> all(static_cast<size_t>(numel(spec.local_shape(full))));
  for (size_t i = 0; i < all.size(); ++i) all[i] = spec.global_index(full, static_cast<int64_t>(i));
  return all;
}

TEST(ShardSpecTest, CutsColumnsOfAFusedMatrix) {
  // Columns q0 q1 | k0 k1 | v0 v1 of two rows: the second of two ranks holds q1, k1 and v1.
  const ShardSpec second = {.dim = 1, .parts = 3, .index = 1, .count = 2};
  EXPECT_EQ(second.local_shape({2, 6}), (Shape{2, 3}));
  EXPECT_EQ(indices(second, {2, 6}), (std::vector<int64_t>{1, 3, 5, 7, 9, 11}));
  // Pieces of two columns: 0 1 2 3 | 4 5 6 7 | 8 9 10 11.
  EXPECT_EQ(indices({1, 3, 0, 2}, {1, 12}), (std::vector<int64_t>{0, 1, 4, 5, 8, 9}));
}

TEST(ShardSpecTest, CutsRowsAndVectors) {
  EXPECT_EQ(indices({0, 1, 1, 3}, {6, 2}), (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(indices({0, 1, 2, 3}, {6}), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(indices({1, 1, 1, 2}, {2, 2, 3}), (std::vector<int64_t>{3, 4, 5, 9, 10, 11}));  // a dim in the middle
}

TEST(ShardSpecTest, OnePieceIsTheWhole) {
  std::vector<int64_t> all(24);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(indices({}, {4, 6}), all);
  EXPECT_EQ(indices({1, 3, 0, 1}, {4, 6}), all);
}

TEST(ShardSpecTest, PiecesCoverEveryElementOnce) {
  for (const int dim : {0, 1, 2})
    for (const int parts : {1, 3})
      for (const int count : {1, 2, 4}) {
        const Shape full = {12, 24, 36};
        std::vector<int> seen(static_cast<size_t>(numel(full)));
        for (int index = 0; index < count; ++index)
          for (const int64_t i : indices({dim, parts, index, count}, full)) ++seen.at(static_cast<size_t>(i));
        EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << dim << " " << parts << " " << count;
      }
}

TEST(ShardSpecTest, RefusesWhatDoesNotDivide) {
  EXPECT_THROW((ShardSpec{0, 1, 0, 4}.local_shape({6})), CheckError);
  EXPECT_THROW((ShardSpec{0, 3, 0, 4}.local_shape({16})), CheckError);  // 16 / 4, but not in three parts
  EXPECT_THROW((ShardSpec{1, 1, 0, 1}.local_shape({6})), CheckError);
  EXPECT_THROW((ShardSpec{0, 1, 2, 2}.local_shape({6})), CheckError);
}

// ---- Initial values ------------------------------------------------------------------------------------------------

class InitTest : public ::testing::Test {
 protected:
  std::vector<float> initial(const std::string& name, Shape full, ShardSpec shard, InitRule rule, uint64_t seed = 1) {
    Parameter parameter;
    parameter.name = name;
    parameter.full_shape = std::move(full);
    parameter.shard = shard;
    parameter.init = rule;
    parameter.value = Tensor::empty(parameter.local_shape(), DType::F32, memory_, Category::Parameters);
    initialize(memory_, parameter, seed);
    const float* data = parameter.value.data<float>();
    return {data, data + parameter.value.numel()};
  }

  Memory memory_;
};

TEST_F(InitTest, IsPhiloxOfSeedNameAndIndex) {
  // From a second implementation in Python of Philox, the key and Box-Muller, times 0.02.
  const std::vector<float> wte = initial("wte.weight", {64, 32}, {}, {.std = 0.02f});
  const float expected[] = {-0.014667633f, -0.014107690f, 0.0079091056f, -0.035668726f, 0.0062559087f};
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(wte[i], expected[i]) << i;
  EXPECT_FLOAT_EQ(wte[1003], 0.0085866876f);

  NormalSequence normal(42, "h.11.attn.c_attn.weight");
  EXPECT_FLOAT_EQ(static_cast<float>(0.02 * normal.at(1003)), 0.010398129f);
  EXPECT_FLOAT_EQ(static_cast<float>(0.02 * normal.at(5 * (int64_t{1} << 32) + 6)), -0.0039749630f);
  EXPECT_FLOAT_EQ(static_cast<float>(0.02 * normal.at(0)), -0.042396812f);  // back again
}

TEST_F(InitTest, IsStandardNormalTimesStd) {
  const std::vector<float> x = initial("w", {400, 500}, {}, {.std = 0.02f});
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double z = x[i] / 0.02;
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
    if (i > 0) neighbours += z * x[i - 1] / 0.02;
  }
  const double n = static_cast<double>(x.size());  // bounds: five standard errors
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 / std::sqrt(n));
}

TEST_F(InitTest, DiffersBySeedAndName) {
  const InitRule rule = {.std = 1};
  const auto base = initial("h.0.mlp.c_fc.weight", {8, 8}, {}, rule);
  EXPECT_EQ(initial("h.0.mlp.c_fc.weight", {8, 8}, {}, rule), base);
  EXPECT_NE(initial("h.0.mlp.c_fc.weight", {8, 8}, {}, rule, 2), base);
  EXPECT_NE(initial("h.1.mlp.c_fc.weight", {8, 8}, {}, rule), base);
}

TEST_F(InitTest, ConstantWhereStdIsZero) {
  EXPECT_EQ(initial("ln_f.weight", {3}, {}, {.constant = 1}), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(initial("ln_f.bias", {3}, {}, {}), (std::vector<float>{0, 0, 0}));
}

TEST_F(InitTest, PiecesOfAFusedMatrixAreThoseOfTheWholeBitForBit) {
  const Shape full = {8, 3 * 8};
  const InitRule rule = {.std = 0.02f};
  const std::vector<float> whole = initial("h.0.attn.c_attn.weight", full, {}, rule);
  for (const int count : {2, 4}) {
    // Put together by hand: row r of the whole is, for q, k and v in turn, the ranks' columns side by side.
    const int64_t width = 8 / count;
    std::vector<float> gathered(whole.size());
    for (int rank = 0; rank < count; ++rank) {
      const auto piece = initial("h.0.attn.c_attn.weight", full, {1, 3, rank, count}, rule);
      ASSERT_EQ(piece.size() * static_cast<size_t>(count), whole.size());
      for (int64_t row = 0; row < 8; ++row)
        for (int64_t part = 0; part < 3; ++part)
          std::memcpy(&gathered[static_cast<size_t>(row * 24 + part * 8 + rank * width)],
                      &piece[static_cast<size_t>((row * 3 + part) * width)], static_cast<size_t>(width) * 4);
    }
    EXPECT_EQ(gathered, whole) << count;
  }
}

}  // namespace
}  // namespace sixfold::parallel
