// The text of the files in profiles/, as embedded when CMake configured. Only profile_file.cpp includes this.
#pragma once

#include <string_view>
#include <vector>

namespace sixfold::comm {

struct BuiltinProfile {
  std::string_view name;  // of the file, without ".json"
  std::string_view text;
};

/// In alphabetical order.
const std::vector<BuiltinProfile>& builtin_profiles();

}  // namespace sixfold::comm
