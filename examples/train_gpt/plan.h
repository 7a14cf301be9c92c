// What a run will do: the options, checked against one another and against the machine. Made before anything is
// allocated and before MPI starts, the same on all ranks.
#pragma once

#include "examples/train_gpt/options.h"
#include "models/config.h"
#include "runtime/comm/observe/record_files.h"
#include "runtime/comm/world.h"
#include "runtime/parallel/mesh.h"
#include "runtime/parallel/pipeline_schedule.h"
#include "runtime/parallel/strategy.h"
#include "runtime/parallel/tp_layers.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/trainer.h"

namespace sixfold::train_gpt {

struct Plan {
  Options options;
  comm::WorldOptions world;
  parallel::MeshShape mesh;
  parallel::PipelineShape pipeline;  // of a step
  models::GptConfig model;
  parallel::TpOptions tp;
  parallel::StrategyOptions strategy;
  train::OptimizerOptions optimizer;
  comm::RecordFiles records;
  train::TrainerOptions trainer;  // share.dp_rank and sequence_part are each rank's own
  Device device;                  // of each rank: the CPU, or its own place's GPU
  DType dtype = DType::F32;       // of activations and parameters
  int num_threads = 1;            // of a rank's kernels
  int num_cores = 1;              // that this process may run on
  int ranks_on_host = 1;          // that share them
};

/// For the first `num_ranks` ranks of the world; 0: for all of them. Throws ConfigError naming flag, value and allowed
/// values.
Plan make_plan(const Options& options, int num_ranks = 0);

}  // namespace sixfold::train_gpt
