// What each rank of a run does.
#pragma once

#include "examples/train_gpt/plan.h"
#include "runtime/comm/world.h"
#include "runtime/train/data.h"
#include "runtime/train/report.h"
#include "runtime/train/trainer.h"

namespace sixfold::train_gpt {

/// What one rank knows at the end of its run.
struct RunResult {
  train::RunSummary summary;
  std::vector<train::StepResult> steps;
};

/// Trains and reports: rank 0 of `group` prints to stdout, unless the plan says --quiet, and writes the files. `group`
/// are the ranks of the plan, in the order of its mesh: all of the world's, or some. What
/// `text` looks at is only read, so that thread ranks share it. Called on every rank of the group; several runs of one
/// world follow one another.
RunResult run_rank(comm::World& world, comm::Communicator& group, const Plan& plan, const train::CorpusSplit& text);

}  // namespace sixfold::train_gpt
