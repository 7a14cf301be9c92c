// Element types, and the two 16-bit floats that C++20 lacks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/core/host_device.h"

namespace sixfold {

enum class DType : uint8_t { F32, BF16, F16, I32, I64, U8 };
inline constexpr DType kAllDTypes[] = {DType::F32, DType::BF16, DType::F16, DType::I32, DType::I64, DType::U8};

size_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);
/// Throws ConfigError with the allowed names when `name` is none of them.
DType parse_dtype(std::string_view name);

/// bfloat16: the upper half of an f32. Conversion from f32 rounds to nearest, ties to even; NaN stays NaN.
struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  SIXFOLD_HD explicit BF16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t quiet_nan = (u >> 16) | 0x40u;
    bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
  SIXFOLD_HD explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// IEEE binary16. Conversions are exact, or round to nearest, ties to even; NaN stays NaN. Straight-line code, so that
/// loops over them become vector code on every target.
struct F16 {
  uint16_t bits = 0;
  F16() = default;
  SIXFOLD_HD explicit F16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = u & 0x7fffffffu;
    // A carry out of the mantissa moves into the exponent, whose bias differs by 112.
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    const uint32_t normal = (rounded - (112u << 23)) >> 13;
    // 0.5 has units of 2^-24, as halves below 2^-14 have: adding it rounds to them, and leaves their number below it.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;  // 2^-14
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;              // 65520 and up round to infinity
    half = magnitude > 0x7f800000u ? 0x7e00u : half;
    bits = static_cast<uint16_t>(half | (u >> 16 & 0x8000u));
  }
  SIXFOLD_HD explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t shifted = static_cast<uint32_t>(bits & 0x7fffu) << 13;
    // Exponent and mantissa in the places of an f32; 2^112 makes up for the bias, of subnormal halves too.
    const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted) * 0x1p112f);
    const uint32_t special = shifted | 0x7f800000u;
    return std::bit_cast<float>(sign | (shifted >= (0x7c00u << 13) ? special : finite));
  }
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::F32;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::BF16;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::F16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::I32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::I64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::U8;
};

/// Calls f with a value-initialised element of the C++ type that `dtype` names: dispatch(d, [](auto t) {...}).
template <typename F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      return f(float{});
    case DType::BF16:
      return f(BF16{});
    case DType::F16:
      return f(F16{});
    case DType::I32:
      return f(int32_t{});
    case DType::I64:
      return f(int64_t{});
    case DType::U8:
      return f(uint8_t{});
  }
  detail::throw_check(__FILE__, __LINE__, "dtype", "", "unknown dtype");
}

}  // namespace sixfold
