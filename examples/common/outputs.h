// Whether the files that a program is to write can be, and would destroy nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/common/resources.h"

namespace sixfold::examples {

/// A path as an option gives it; empty: not given.
struct NamedPath {
  std::string flag, path;
};

// What cannot be looked at is not what the program can read or write: it says so elsewhere.

/// Whether two paths lead to one file, by whatever links.
inline bool is_same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path name = fs::weakly_canonical(a, error);
  return !name.empty() && name == fs::weakly_canonical(b, error);
}

/// Whether `path` is a file in `folder` or below it.
inline bool is_file_below(const std::string& path, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error) || !fs::exists(path, error)) return false;
  const fs::path relative = fs::canonical(path, error).lexically_relative(fs::canonical(folder, error));
  return !relative.empty() && *relative.begin() != "..";
}

/// Throws ConfigError where an output cannot be written (check_writable), is one of the inputs or a file in a folder of
/// them, or is another output as well.
inline void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [flag, path] = outputs[i];
    if (path.empty()) continue;
    check_writable(flag, path);
    for (const auto& [input, text] : inputs) {
      if (text.empty()) continue;
      if (is_same_file(path, text)) throw ConfigError(flag + " " + path + ": is the text of " + input);
      if (is_file_below(path, text)) throw ConfigError(flag + " " + path + ": is a file of " + input + " " + text);
    }
    for (size_t k = 0; k < i; ++k) {
      if (!outputs[k].path.empty() && is_same_file(path, outputs[k].path)) {
        throw ConfigError(outputs[k].flag + " and " + flag + " " + path + ": are one file");
      }
    }
  }
}

}  // namespace sixfold::examples
