// JSON files that users write by hand: every key is wanted, every value is checked, and what is wrong is named.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sixfold::comm {

/// Throws ConfigError, which begins with `where` ("--profile fast.json"), on text that is not JSON or that gives a key
/// twice.
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// The whole file. Throws ConfigError, which begins with `where`, when it cannot be read.
std::string read_text_file(const std::string& path, const std::string& where);

/// Reads the members of one object. Each function throws ConfigError that names `where` and the key where the member is
/// missing or is not what is asked for.
class ObjectReader {
 public:
  /// `value` and this object must outlive the reader. Throws ConfigError unless it is an object.
  ObjectReader(const nlohmann::json& value, std::string where);

  bool has(const std::string& key) const { return value_.contains(key); }
  double positive(const std::string& key);
  double not_negative(const std::string& key);
  int64_t whole(const std::string& key, int64_t least);
  std::string text(const std::string& key);
  /// Read and not used: sources and comments. Must be text where it is there.
  void comment(const std::string& key);
  ObjectReader object(const std::string& key);
  const nlohmann::json& array(const std::string& key);
  /// Throws ConfigError where the object has a key that nobody asked for.
  void expect_nothing_else() const;
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

 private:
  const nlohmann::json& member(const std::string& key);
  double number(const std::string& key);

  const nlohmann::json& value_;
  std::string where_;
  std::vector<std::string> known_;  // keys asked for, in order
};

}  // namespace sixfold::comm
