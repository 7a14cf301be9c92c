// TokenView: tokens where they lie, in memory or in a mapped file, of one byte or of two.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "runtime/core/error.h"

namespace sixfold::train {

static_assert(std::endian::native == std::endian::little,
              "files hold little-endian tokens, which are read as they lie");

/// Does not own them. A token of one byte is a byte of a text.
class TokenView {
 public:
  TokenView() = default;
  explicit TokenView(std::span<const uint8_t> bytes) : tokens_(bytes) {}
  explicit TokenView(std::span<const uint16_t> tokens) : tokens_(tokens) {}

  bool are_bytes() const { return std::holds_alternative<std::span<const uint8_t>>(tokens_); }
  /// What messages count.
  const char* unit() const { return are_bytes() ? "byte" : "token"; }
  size_t size() const {
    return std::visit([](auto tokens) { return tokens.size(); }, tokens_);
  }
  int32_t operator[](size_t index) const {
    return std::visit([&](auto tokens) { return int32_t{tokens[index]}; }, tokens_);
  }
  /// count <= size().
  TokenView first(size_t count) const {
    return std::visit([&](auto tokens) { return TokenView(tokens.first(count)); }, tokens_);
  }
  TokenView last(size_t count) const {
    return std::visit([&](auto tokens) { return TokenView(tokens.last(count)); }, tokens_);
  }
  /// to[i] = token begin + i.
  void copy(size_t begin, std::span<int32_t> to) const {
    SIXFOLD_CHECK_LE(to.size(), size(), "tokens to copy");
    SIXFOLD_CHECK_LE(begin, size() - to.size(), "tokens to copy");
    std::visit(
        [&](auto tokens) { std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(begin), to.size(), to.begin()); },
        tokens_);
  }
  /// The first token that is `limit` or more.
  std::optional<size_t> find_from(int64_t limit) const;

 private:
  std::variant<std::span<const uint8_t>, std::span<const uint16_t>> tokens_;
};

}  // namespace sixfold::train
