// The options of compare_strategies, as the user gives them.
#pragma once

#include <optional>
#include <string>

#include "examples/train_gpt/options.h"

namespace sixfold::compare_strategies {

struct CompareOptions {
  train_gpt::Options base;  // data, model, training and world, the same for all strategies
  std::string strategies;   // strategies.h; empty: the default list
  std::string profile;      // a hardware profile; empty: none
  std::string json, html;   // files; empty: none
  bool markdown = false;
};

/// Empty after --help, whose text goes to stdout where `speaks` is set. Throws ConfigError for an unknown flag and for
/// a value that no run could have.
std::optional<CompareOptions> parse_options(int argc, const char* const* argv, bool speaks);

}  // namespace sixfold::compare_strategies
