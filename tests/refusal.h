// What a call refuses, and how.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/core/error.h"

namespace sixfold::test {

/// The text of the ConfigError that `body` throws.
template <typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(accepted)";
}

inline void expect_mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
}

}  // namespace sixfold::test
