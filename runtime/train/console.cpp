#include "runtime/train/console.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace sixfold::train {

namespace {
constexpr int64_t kNumPlainLines = 20;
constexpr const char* kClearToEnd = "\033[K";

// Bytes of the UTF-8 sequence that `bytes` begins with (2 to 4); 0 where it begins with none. Overlong forms and
// surrogates, which are rare in random text and harmless, are let through.
size_t utf8_sequence(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes.front());
  const size_t length = first >= 0xc2 && first < 0xe0   ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || bytes.size() < length) return 0;
  const auto continues = [](char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; };
  return std::all_of(bytes.begin() + 1, bytes.begin() + static_cast<std::ptrdiff_t>(length), continues) ? length : 0;
}
}  // namespace

std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto first = static_cast<uint8_t>(bytes.front());
    const bool shown = (first >= 0x20 && first < 0x7f) || first == '\n' || first == '\t';
    const size_t length = first < 0x80 ? 0 : utf8_sequence(bytes);
    text += shown || length > 0 ? std::string(bytes.substr(0, std::max<size_t>(length, 1))) : "?";
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

std::string format_duration(double seconds) {
  const auto total = static_cast<long long>(std::llround(std::max(seconds, 0.0)));
  char text[64];
  if (total < 3600) {
    std::snprintf(text, sizeof(text), "%lld:%02lld", total / 60, total % 60);
  } else {
    std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
  }
  return text;
}

void Console::step(const StepResult& result) {
  if (result.step > 1) seconds_ += result.seconds;
  const bool last = result.step == options_.num_steps;
  if (options_.live) {
    out_ << '\r' << text_of(result) << kClearToEnd << std::flush;
    line_open_ = true;
    if (last) line("");
    return;
  }
  const int64_t every = std::max<int64_t>(options_.num_steps / kNumPlainLines, 1);
  if (result.step == 1 || last || result.step % every == 0) out_ << text_of(result) << std::endl;
}

void Console::line(const std::string& text) {
  if (line_open_) out_ << '\n';
  line_open_ = false;
  if (!text.empty()) out_ << text << std::endl;
}

std::string Console::text_of(const StepResult& result) const {
  // The first step touches fresh memory, so it says little about the others.
  const double mean = result.step > 1 ? seconds_ / static_cast<double>(result.step - 1) : result.seconds;
  const double left = mean * static_cast<double>(options_.num_steps - result.step);
  const std::string total = std::to_string(options_.num_steps);
  char text[200];
  std::snprintf(text, sizeof(text), "step %*lld/%s  loss %.4f  norm %.3f  lr %.2e  %.0f tokens/s  left %s%s",
                static_cast<int>(total.size()), static_cast<long long>(result.step), total.c_str(), result.loss,
                result.grad_norm, static_cast<double>(result.lr), result.tokens_per_second(),
                format_duration(left).c_str(), result.skipped ? "  SKIPPED: gradient not finite" : "");
  return text;
}

}  // namespace sixfold::train
