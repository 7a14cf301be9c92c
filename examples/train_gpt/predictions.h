// What a rank of a run sends and keeps by the formulas, for all axes together.
#pragma once

#include "examples/train_gpt/plan.h"
#include "runtime/parallel/predict.h"

namespace sixfold::train_gpt {

struct Predictions {
  std::vector<parallel::TagTraffic> traffic;  // of a step of training
  parallel::MemoryPrediction memory;          // peaks
};

/// Of this rank, whose stage is `stage` and whose groups are those of `mesh`.
Predictions predict(const Plan& plan, parallel::Mesh& mesh, const parallel::StageUnits& stage);

}  // namespace sixfold::train_gpt
