// The files that a run reads.
#pragma once

#include "examples/train_gpt/plan.h"
#include "runtime/train/data.h"

namespace sixfold::train_gpt {

struct RunData {
  train::Corpus corpus, validation;  // the latter with --val-data
  train::CorpusSplit text;           // views of them
};

/// What the plan's options name, checked against its model and batch. Called once in a process, before the ranks start:
/// what cannot be throws ConfigError, the same in all processes.
RunData load_data(const Plan& plan);

}  // namespace sixfold::train_gpt
