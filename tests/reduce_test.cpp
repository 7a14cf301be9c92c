// The fused reduce / copy kernel, and the 16-bit conversions it rests on.
#include "kernels/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/harness.h"

namespace sixfold::test {
namespace {

TEST(DTypes, BF16RoundsToNearestEven) {
  EXPECT_EQ(BF16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BF16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // a tie goes to the even one
  EXPECT_EQ(BF16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(BF16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(BF16(std::numeric_limits<float>::max()).bits, 0x7f80);  // rounds to infinity
  EXPECT_TRUE(std::isnan(static_cast<float>(BF16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(static_cast<float>(BF16(-2.5f)), -2.5f);
}

TEST(DTypes, F16EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    F16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(F16(value))));
    } else {
      EXPECT_EQ(F16(value).bits, bits);
    }
  }
  EXPECT_EQ(F16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(F16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(F16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(F16(0x1p-24f).bits, 1);
  EXPECT_EQ(F16(0x1p-25f).bits, 0);  // a tie goes to the even one, which is zero
  EXPECT_EQ(F16(1.0f / 3.0f).bits, 0x3555);
}

// The nearest half in double: a multiple of 2^(exponent - 10), at least of 2^-24; nearbyint takes ties to even.
uint16_t nearest_half(float value) {
  const double magnitude = std::abs(static_cast<double>(value));
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (magnitude >= 65520) return sign | 0x7c00;
  const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  const double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // of 2^(exponent - 10); up to 2048
  return static_cast<uint16_t>(sign | static_cast<uint16_t>((exponent + 14) * 1024 + static_cast<int>(units)));
}

TEST(DTypes, F16RoundsToNearestEven) {
  uint32_t bits = 12345;
  for (int i = 0; i < 1000000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    const uint32_t sign_and_mantissa = bits & 0x807fffffu;
    const uint32_t exponent = 127 - 30 + (bits >> 23 & 0xff) % 50;  // 2^-30 to 2^19: all cases of f16
    // Every other mantissa ends in a tie, or just beside one.
    const uint32_t tie = (bits & 1) != 0 ? 0 : (sign_and_mantissa & 0xffffe000u) + 0x1000u + bits % 3 - 1;
    const uint32_t chosen = (tie != 0 ? tie : sign_and_mantissa) | exponent << 23;
    const float value = std::bit_cast<float>(chosen);
    ASSERT_EQ(F16(value).bits, nearest_half(value)) << value;
  }
}

TEST(FusedReduce, ReceivedAndLocalToDstAndSend) {
  std::vector<float> received = {1, 2, 3, 4, 5}, local = {10, 20, 30, 40, 50}, dst(5), send(5);
  kernels::FusedOperands o;
  o.received = received.data();
  o.local = local.data();
  o.dst = dst.data();
  o.send = send.data();
  kernels::fused_reduce(DType::F32, ReduceOp::Avg, o, 5, 0.5f);
  EXPECT_EQ(dst, (std::vector<float>{5.5f, 11, 16.5f, 22, 27.5f}));
  EXPECT_EQ(send, dst);
}

TEST(FusedReduce, AccumKeepsWhatSixteenBitsWouldLose) {
  std::vector<BF16> received(9, BF16(1.0f)), out(9);
  std::vector<float> accum(9, 256.0f);
  kernels::FusedOperands o;
  o.received = received.data();
  o.local = o.dst = accum.data();
  o.local_is_accum = o.dst_is_accum = true;
  kernels::fused_reduce(DType::BF16, ReduceOp::Sum, o, 9, 1.0f);
  EXPECT_EQ(accum[8], 257.0f);
  kernels::fused_reduce(DType::BF16, ReduceOp::Sum, o, 9, 1.0f);
  kernels::FusedOperands last;
  last.local = accum.data();
  last.local_is_accum = true;
  last.dst = out.data();
  kernels::fused_reduce(DType::BF16, ReduceOp::Sum, last, 9, 1.0f);
  EXPECT_EQ(static_cast<float>(out[8]), 258.0f);
}

TEST(FusedReduce, ExtremaKeepNaN) {
  const float nan = std::nanf("");
  std::vector<float> a = {nan, 1, 2}, b = {1, nan, 3}, out(3);
  for (ReduceOp op : {ReduceOp::Min, ReduceOp::Max}) {
    kernels::FusedOperands o;
    o.received = a.data();
    o.local = b.data();
    o.dst = out.data();
    kernels::fused_reduce(DType::F32, op, o, 3, 1.0f);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_EQ(out[2], op == ReduceOp::Min ? 2.0f : 3.0f);
  }
}

// Operands swapped, as two ranks may see them: the same bits.
TEST(FusedReduce, ExtremaCommuteBitForBit) {
  const std::vector<float> a = {0.0f, -0.0f, std::bit_cast<float>(0x7fc00001u), 1.5f, -0.0f};
  const std::vector<float> b = {-0.0f, 0.0f, std::bit_cast<float>(0xffc00002u), 1.5f, -0.0f};
  for (ReduceOp op : {ReduceOp::Min, ReduceOp::Max}) {
    std::vector<float> ab(5), ba(5);
    kernels::fused_reduce(DType::F32, op, {.received = a.data(), .local = b.data(), .dst = ab.data()}, 5, 1.0f);
    kernels::fused_reduce(DType::F32, op, {.received = b.data(), .local = a.data(), .dst = ba.data()}, 5, 1.0f);
    EXPECT_EQ(0, std::memcmp(ab.data(), ba.data(), 5 * sizeof(float)));
    EXPECT_EQ(std::signbit(ab[0]), op == ReduceOp::Min);
    EXPECT_TRUE(std::signbit(ab[4]));
    EXPECT_EQ(ab[3], 1.5f);
  }
}

TEST(FusedReduce, IntegersWrap) {
  std::vector<int32_t> a = {std::numeric_limits<int32_t>::max(), -7}, b = {1, 3}, out(2);
  kernels::FusedOperands o;
  o.received = a.data();
  o.local = b.data();
  o.dst = out.data();
  kernels::fused_reduce(DType::I32, ReduceOp::Sum, o, 2, 1.0f);
  EXPECT_EQ(out, (std::vector<int32_t>{std::numeric_limits<int32_t>::min(), -4}));
  kernels::fused_reduce(DType::I32, ReduceOp::Prod, o, 2, 1.0f);
  EXPECT_EQ(out, (std::vector<int32_t>{std::numeric_limits<int32_t>::max(), -21}));
}

TEST(FusedReduce, NamesAndPairs) {
  for (ReduceOp op : kAllReduceOps) EXPECT_EQ(parse_reduce_op(reduce_op_name(op)), op);
  EXPECT_THROW(parse_reduce_op("mean"), ConfigError);
  for (DType dtype : kAllDTypes) EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  EXPECT_THROW(parse_dtype("f64"), ConfigError);
  EXPECT_TRUE(kernels::reduce_supported(DType::F16, ReduceOp::Avg));
  EXPECT_FALSE(kernels::reduce_supported(DType::I64, ReduceOp::Avg));
}

}  // namespace
}  // namespace sixfold::test
