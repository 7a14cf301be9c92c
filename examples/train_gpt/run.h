// What each rank of a run does.
#pragma once

#include "examples/train_gpt/plan.h"
#include "runtime/comm/world.h"
#include "runtime/train/data.h"

namespace sixfold::train_gpt {

/// Trains and reports; rank 0 prints to stdout and writes the files. `text` is only read, so that thread ranks share
/// one. Called on every rank of the world.
void run_rank(comm::World& world, const Plan& plan, const train::CorpusSplit& text);

}  // namespace sixfold::train_gpt
