// Command lines of the programs: options in groups, read strictly, refused by name.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/core/error.h"

namespace sixfold::examples {

// Far beyond any use, and small enough that products of two of them do not overflow.
inline constexpr uint64_t kMaxWhole = 1000000000;

// CLI11 takes 010 for 8 and cuts what does not fit to the largest number: whole numbers are read strictly.
template <typename T>
bool reads_as(const std::string& text, T& value) {
  if constexpr (std::is_integral_v<T>) {
    if (text.size() > 1 && text[0] == '0') return false;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    return parsed.ec == std::errc{} && parsed.ptr == end;
  } else {
    return CLI::detail::lexical_cast(text, value);
  }
}

// Refuses, before CLI11 converts it, what is no number of type T or lies outside of [min, max].
template <typename T>
CLI::Validator number(const std::string& flag, T min, T max, const std::string& allowed) {
  const auto check = [=](const std::string& text) {
    T value{};
    if (!reads_as(text, value) || !(value >= min && value <= max)) {
      throw ConfigError(flag + " " + text + ": allowed values are " + allowed);
    }
    return std::string();
  };
  return CLI::Validator(check, "");
}

inline CLI::Validator one_of(const std::string& flag, const std::vector<std::string>& names) {
  const auto check = [=](const std::string& text) {
    if (std::find(names.begin(), names.end(), text) != names.end()) return std::string();
    throw ConfigError(flag + " " + text + ": allowed values are " + CLI::detail::join(names, ", "));
  };
  return CLI::Validator(check, "");
}

inline CLI::Validator not_empty(const std::string& flag, const std::string& form) {
  const auto check = [=](const std::string& text) {
    if (text.empty()) throw ConfigError(flag + " with an empty value: needs " + form);
    return std::string();
  };
  return CLI::Validator(check, "");
}

/// Adds options of one group of the help text. Values that are impossible throw ConfigError while CLI11 parses.
class OptionGroup {
 public:
  OptionGroup(CLI::App& app, std::string name) : app_(app), name_(std::move(name)) {}

  template <typename T>
  void whole(const std::string& flag, T& value, T min, const std::string& text, T max = static_cast<T>(kMaxWhole)) {
    add(flag, value, text)->check(number(flag, min, max, whole_numbers(min, max)));
  }
  template <typename T>
  void whole_without_default(const std::string& flag, std::optional<T>& value, T min, const std::string& text,
                             T max = static_cast<T>(kMaxWhole)) {
    app_.add_option(flag, value, text)->group(name_)->check(number(flag, min, max, whole_numbers(min, max)));
  }
  template <typename T>
  void real(const std::string& flag, T& value, T min, T max, const std::string& allowed, const std::string& text) {
    add(flag, value, text)->check(number(flag, min, max, allowed));
  }
  template <typename T>
  void real_without_default(const std::string& flag, std::optional<T>& value, T min, T max, const std::string& allowed,
                            const std::string& text) {
    app_.add_option(flag, value, text)->group(name_)->check(number(flag, min, max, allowed));
  }
  void choice(const std::string& flag, std::string& value, const std::vector<std::string>& names,
              const std::string& text) {
    add(flag, value, text + ": " + CLI::detail::join(names, "|"))->check(one_of(flag, names));
  }
  void path(const std::string& flag, std::string& value, const std::string& text) {
    add(flag, value, text)->type_name("FILE")->check(not_empty(flag, "FILE"));
  }
  void text(const std::string& flag, std::string& value, const std::string& form, const std::string& text) {
    app_.add_option(flag, value, text)->type_name(form)->group(name_)->check(not_empty(flag, form));
  }
  void flag(const std::string& name, bool& value, const std::string& text) {
    app_.add_flag(name, value, text + " (default: off)")->group(name_);
  }

 private:
  template <typename T>
  static std::string whole_numbers(T min, T max) {
    return "whole numbers from " + std::to_string(min) + " to " + std::to_string(max);
  }
  template <typename T>
  CLI::Option* add(const std::string& flag, T& value, const std::string& text) {
    return app_.add_option(flag, value, text)->capture_default_str()->group(name_);
  }

  CLI::App& app_;
  std::string name_;
};

}  // namespace sixfold::examples
