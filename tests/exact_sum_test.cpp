#include "kernels/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/harness.h"

namespace sixfold::kernels {
namespace {

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (double value : values) sum.add(value);
  return sum.value();
}

/// Adds up the words of all ranks.
void over_ranks(ExactSum& sum, comm::World& world) {
  sum.carry();
  const Tensor words = Tensor::view(sum.words, {ExactSum::kNumWords}, DType::I64);
  world.group().all_reduce(words, words, ReduceOp::Sum).wait();
}

TEST(ExactSum, IsRoundedOnceAtTheEnd) {
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_EQ(sum_of({0.0, 9.0, 16.0}), 25.0);
  // Each small term alone is lost beside 1; together they are one unit in the last place.
  EXPECT_EQ(sum_of({1, 0x1p-54, 0x1p-54}), 1.0);  // a tie: to even
  EXPECT_EQ(sum_of({1, 0x1p-54, 0x1p-54, 0x1p-54, 0x1p-54}), 1 + 0x1p-52);
  EXPECT_EQ(sum_of({1, 0x1p-53, 0x1p-298}), 1 + 0x1p-52);  // just above the tie
  // The square of the smallest f32, alone and beside that of the largest.
  const double tiny = std::pow(double{std::numeric_limits<float>::denorm_min()}, 2);
  const double huge = std::pow(double{std::numeric_limits<float>::max()}, 2);
  EXPECT_EQ(sum_of({tiny}), 0x1p-298);
  EXPECT_EQ(sum_of({tiny, tiny, tiny}), 3 * 0x1p-298);
  EXPECT_EQ(sum_of({huge, tiny}), huge);
  EXPECT_EQ(sum_of({huge, huge}), 2 * huge);
}

TEST(ExactSum, SquaresOfEveryMagnitudeInAnyOrderOnAnyRanks) {
  std::mt19937_64 random(1);
  std::vector<double> squares;
  long double reference = 0;  // 64 bits of mantissa: good to 1e-16 for terms of one sign
  for (int i = 0; i < 20000; ++i) {
    const float x =
        std::ldexp(1 + static_cast<float>(random() % 1000000) * 1e-6f, static_cast<int>(random() % 60) - 50);
    squares.push_back(static_cast<double>(x) * static_cast<double>(x));
    reference += squares.back();
  }
  const double expected = sum_of(squares);
  EXPECT_NEAR(expected, static_cast<double>(reference), 2e-16 * static_cast<double>(reference));
  for (int round = 0; round < 5; ++round) {
    std::shuffle(squares.begin(), squares.end(), random);
    EXPECT_EQ(sum_of(squares), expected);
  }
  for (int n : {1, 2, 3, 4}) {
    test::run_ranks(n, [&](comm::World& world) {
      ExactSum sum;
      for (size_t i = 0; i < squares.size(); ++i) {
        if (static_cast<int>(i * i % 7) % n == world.rank()) sum.add(squares[i]);
      }
      over_ranks(sum, world);
      EXPECT_EQ(sum.value(), expected);
    });
  }
}

TEST(ExactSum, IsNaNOfWhatItCannotHold) {
  for (double bad : {-1.0, -0x1p-298, 0x1p300, 0x1p1000}) EXPECT_TRUE(std::isnan(sum_of({1, bad, 2}))) << bad;
  EXPECT_EQ(sum_of({-0.0, 2}), 2);
  EXPECT_EQ(sum_of({0x1p256}), 0x1p256);
}

TEST(ExactSum, WhatIsNotFiniteStaysSoOnAllRanks) {
  for (double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(sum_of({1, bad, 2})));
    test::run_ranks(3, [&](comm::World& world) {
      ExactSum sum;
      sum.add(world.rank() == 1 ? bad : 1.0);
      over_ranks(sum, world);
      EXPECT_TRUE(std::isnan(sum.value()));
    });
  }
}

}  // namespace
}  // namespace sixfold::kernels
