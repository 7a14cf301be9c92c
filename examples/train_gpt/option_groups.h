// Options of train_gpt that other programs have, too, by group of the help text.
#pragma once

#include "examples/train_gpt/options.h"

namespace CLI {
class App;
}

namespace sixfold::train_gpt {

/// Each adds options that are written to `options`, which outlives the parsing. Values that no run could have throw
/// ConfigError while CLI11 parses.
void add_data(CLI::App& app, Options& options);
void add_model(CLI::App& app, Options& options);
void add_training(CLI::App& app, Options& options);
/// The ranks, how they communicate and what holds for every strategy; not which strategy.
void add_world(CLI::App& app, Options& options);

}  // namespace sixfold::train_gpt
