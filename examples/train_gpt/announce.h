// What a user should know of a plan before its first step.
#pragma once

#include "examples/train_gpt/plan.h"

namespace sixfold::train_gpt {

/// With --show-pipeline draws the schedule on stdout; warns (log) of ZeRO-2 and 3 on pipelines and of tensor-parallel
/// groups that span nodes of `topology`, with what that costs. For one rank to call.
void announce(const Plan& plan, const comm::Topology& topology);

}  // namespace sixfold::train_gpt
