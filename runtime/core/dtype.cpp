#include "runtime/core/dtype.h"

#include <cmath>
#include <string>

namespace sixfold {

size_t dtype_bytes(DType dtype) {
  return dispatch(dtype, [](auto element) { return sizeof(element); });
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return "f32";
    case DType::BF16:
      return "bf16";
    case DType::F16:
      return "f16";
    case DType::I32:
      return "i32";
    case DType::I64:
      return "i64";
    case DType::U8:
      return "u8";
  }
  return "unknown";
}

DType parse_dtype(std::string_view name) {
  for (DType dtype : kAllDTypes) {
    if (dtype_name(dtype) == name) return dtype;
  }
  throw ConfigError("dtype '" + std::string(name) + "': allowed are f32, bf16, f16, i32, i64, u8");
}

#ifndef __FLT16_MAX__
// Compilers without _Float16 on this target (g++ 11 in C++ mode): the conversions by hand.
F16::F16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    bits = sign | 0x7e00u;
  } else if (magnitude >= 65520.0f) {  // halfway between the largest half and the next power of two rounds up
    bits = sign | 0x7c00u;
  } else if (magnitude < 6.103515625e-5f) {  // subnormal: units of 2^-24
    bits = sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  } else {
    const uint32_t m = std::bit_cast<uint32_t>(magnitude);
    const uint32_t rounded = m + 0xfffu + ((m >> 13) & 1u);  // ties to even; a carry moves into the exponent
    bits = sign | static_cast<uint16_t>((rounded - (112u << 23)) >> 13);
  }
}

F16::operator float() const {
  const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  if (exponent == 0) return std::copysign(std::ldexp(static_cast<float>(mantissa), -24), sign ? -1.0f : 1.0f);
  const uint32_t out_exponent = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (out_exponent << 23) | (mantissa << 13));
}
#endif

}  // namespace sixfold
