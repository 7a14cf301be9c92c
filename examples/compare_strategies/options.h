// The options of compare_strategies, as the user gives them.
#pragma once

#include <optional>
#include <string>

#include "examples/train_gpt/options.h"

namespace sixfold::compare_strategies {

struct CompareOptions {
  train_gpt::Options base;        // data, model, training and world, the same for all strategies
  bool has_global_batch = false;  // given by the user; else default_global_batch()
  std::string strategies;         // strategies.h; empty: the default list
  std::string profile;            // a hardware profile; empty: none
  std::string json, html;         // files; empty: none
  bool markdown = false;
};

/// Rows of a step where the user does not say: 16, which makes micro-batches for pipelines, or the next number that the
/// ranks divide.
int64_t default_global_batch(int num_ranks);

/// Empty after --help, whose text goes to stdout where `speaks` is set. Throws ConfigError for an unknown flag and for
/// a value that no run could have.
std::optional<CompareOptions> parse_options(int argc, const char* const* argv, bool speaks);

}  // namespace sixfold::compare_strategies
