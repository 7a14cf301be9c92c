#include "runtime/train/token_view.h"

#include <limits>

namespace sixfold::train {

namespace {

template <typename Token>
std::optional<size_t> find_in(std::span<const Token> tokens, Token limit) {
  // Files are large: whole blocks, whose largest token vector code finds, are passed over.
  constexpr size_t kBlock = 4096;
  size_t begin = 0;
  for (; tokens.size() - begin >= kBlock; begin += kBlock) {
    const Token* block = tokens.data() + begin;
    Token largest = 0;
    for (size_t i = 0; i < kBlock; ++i) largest = std::max(largest, block[i]);
    if (largest >= limit) break;
  }
  while (begin < tokens.size() && tokens[begin] < limit) ++begin;
  return begin < tokens.size() ? std::optional(begin) : std::nullopt;
}

}  // namespace

std::optional<size_t> TokenView::find_from(int64_t limit) const {
  return std::visit(
      [&]<typename Token>(std::span<const Token> tokens) -> std::optional<size_t> {
        if (limit > std::numeric_limits<Token>::max()) return std::nullopt;
        return find_in(tokens, static_cast<Token>(limit));
      },
      tokens_);
}

}  // namespace sixfold::train
