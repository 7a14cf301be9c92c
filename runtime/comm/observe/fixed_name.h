// FixedName: a short text in words, so that tables in shared memory can hold it in lock-free atomics.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace sixfold::comm {

/// Up to kBytes bytes. Of longer texts the head or the tail is left out, and "..." stands for it.
class FixedName {
 public:
  static constexpr size_t kBytes = 32;
  static constexpr size_t kWords = kBytes / sizeof(uint64_t);
  enum class Keep : uint8_t { Head, Tail };

  FixedName() = default;
  explicit FixedName(std::string_view text, Keep keep = Keep::Head) {
    constexpr std::string_view kDots = "...";
    char bytes[kBytes] = {};
    if (text.size() <= kBytes) {
      std::memcpy(bytes, text.data(), text.size());
    } else {
      const size_t kept = kBytes - kDots.size();
      const bool head = keep == Keep::Head;
      std::memcpy(bytes + (head ? 0 : kDots.size()), text.data() + (head ? 0 : text.size() - kept), kept);
      std::memcpy(bytes + (head ? kept : 0), kDots.data(), kDots.size());
    }
    std::memcpy(words.data(), bytes, kBytes);
  }

  std::string str() const {
    char bytes[kBytes + 1] = {};
    std::memcpy(bytes, words.data(), kBytes);
    return bytes;
  }
  bool operator==(const FixedName&) const = default;

  std::array<uint64_t, kWords> words{};
};

}  // namespace sixfold::comm
