#include "runtime/core/dtype.h"

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

}  // namespace sixfold
