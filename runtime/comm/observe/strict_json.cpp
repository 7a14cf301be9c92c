#include "runtime/comm/observe/strict_json.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/core/error.h"

namespace sixfold::comm {

using Json = nlohmann::json;

Json parse_json(std::string_view text, const std::string& where) {
  // The parser keeps the last of two equal keys; the user meant one of them, and we do not know which.
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw ConfigError(where + ": key '" + parsed.get<std::string>() + "' is given twice");
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw ConfigError(where + ": not valid JSON: " + error.what());
  }
}

std::string read_text_file(const std::string& path, const std::string& where) {
  std::error_code unknown;  // what cannot be looked at cannot be read, which is said below
  if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown)) {
    throw ConfigError(where + ": is no regular file");
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad() || text.fail()) throw ConfigError(where + ": cannot read the file");
  return text.str();
}

ObjectReader::ObjectReader(const Json& value, std::string where) : value_(value), where_(std::move(where)) {
  if (!value.is_object()) throw ConfigError(where_ + ": must be an object");
}

void ObjectReader::refuse(const std::string& key, const std::string& why) const {
  throw ConfigError(where_ + ": '" + key + "' " + why);
}

const Json& ObjectReader::member(const std::string& key) {
  known_.push_back(key);
  const auto found = value_.find(key);
  if (found == value_.end()) refuse(key, "is missing");
  return *found;
}

double ObjectReader::number(const std::string& key) {
  const Json& value = member(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, "is " + value.dump() + ", not a number");
  return value.get<double>();
}

double ObjectReader::positive(const std::string& key) {
  const double value = number(key);
  if (value <= 0) refuse(key, "is " + member(key).dump() + "; allowed are numbers above 0");
  return value;
}

double ObjectReader::not_negative(const std::string& key) {
  const double value = number(key);
  if (value < 0) refuse(key, "is " + member(key).dump() + "; allowed are numbers from 0 on");
  return value;
}

int64_t ObjectReader::whole(const std::string& key, int64_t least) {
  const Json& value = member(key);
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!fits || value.get<int64_t>() < least) {
    refuse(key, "is " + value.dump() + "; allowed are whole numbers from " + std::to_string(least) + " on");
  }
  return value.get<int64_t>();
}

std::string ObjectReader::text(const std::string& key) {
  const Json& value = member(key);
  if (!value.is_string() || value.get<std::string>().empty()) refuse(key, "is " + value.dump() + ", not a text");
  return value.get<std::string>();
}

void ObjectReader::comment(const std::string& key) {
  if (has(key)) text(key);
}

ObjectReader ObjectReader::object(const std::string& key) {
  return ObjectReader(member(key), where_ + ": '" + key + "'");
}

const Json& ObjectReader::array(const std::string& key) {
  const Json& value = member(key);
  if (!value.is_array()) refuse(key, "is " + value.dump() + ", not a list");
  return value;
}

void ObjectReader::expect_nothing_else() const {
  for (const auto& [key, value] : value_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::string allowed;
    for (const std::string& name : std::set<std::string>(known_.begin(), known_.end())) {
      allowed += (allowed.empty() ? "" : ", ") + name;
    }
    refuse(key, "is not a key; allowed are " + allowed);
  }
}

}  // namespace sixfold::comm
