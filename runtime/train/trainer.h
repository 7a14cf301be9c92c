// Trainer: the steps of a run. It knows units and a strategy, never a model or a primitive.
//
// One step, on every rank:
//
//   1. rows of this rank are loaded; the number of valid tokens is AllReduced ("dp.tokens"), so that every token's loss
//      can count 1 / valid tokens of the global batch and gradients are summed, never averaged
//   2. the list of actions: forward m, backward m for each micro-batch; between units, and between pieces of the long
//      kernels, the trainer polls the communication, so that it goes on without a thread of its own
//   3. finish_gradients, global norm ("dp.norm" where gradients are in shards), clipping, optimizer, after_step; the
//      loss is AllReduced ("dp.loss") meanwhile
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/clip.h"
#include "runtime/train/data.h"
#include "runtime/train/lr_schedule.h"
#include "runtime/train/optimizer.h"

namespace sixfold::train {

/// What one pipeline stage does next.
struct Action {
  enum class Kind : uint8_t { Forward, Backward } kind = Kind::Forward;
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};
/// The list of the only stage: forward 0, backward 0, forward 1, ... so that one micro-batch's activations live at a
/// time.
std::vector<Action> single_stage_actions(int num_micro_batches);

/// Writes row `row` of the global batch of `step` (both from 0): i32 [seq_len] each; a target below 0 is masked.
using FillRow = std::function<void(int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets)>;

struct TrainerOptions {
  int64_t seq_len = 0;
  BatchShare share;
  LrSchedule lr;
  double clip_norm = 0;  // 0: gradients are not clipped
  NormOrder norm_order = NormOrder::Segments;
  int64_t check_replicas_every = 0;  // steps; 0: never
};

/// What a trainer works with; all of it outlives the trainer.
struct TrainerParts {
  comm::World& world;
  comm::Communicator& batch_group;  // the ranks that share the global batch
  parallel::UnitList units;
  parallel::Strategy& strategy;
  Optimizer& optimizer;
  kernels::Context& context;
};

struct StepResult {
  int64_t step = 0;      // counted from 1
  double loss = 0;       // nats per valid token, mean over the global batch
  double grad_norm = 0;  // before clipping
  float lr = 0;
  bool skipped = false;        // the norm was not finite: no parameter has changed, on any rank
  int64_t num_tokens = 0;      // valid tokens of the global batch
  double seconds = 0;          // of this rank, as the next two
  double comm_seconds = 0;     // sum over the operations, side by side or not
  double exposed_seconds = 0;  // in which the rank did nothing else

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(num_tokens) / seconds : 0; }
};

class Trainer {
 public:
  /// Has the context's kernels poll as long as the trainer lives.
  Trainer(TrainerParts parts, const TrainerOptions& options, FillRow fill_row);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Between the gradients and the optimizer of a step: for whoever wants to look at them. Called on every rank.
  using AfterGradients = std::function<void(int64_t step)>;
  /// Collective over all ranks.
  StepResult step(const AfterGradients& after_gradients = nullptr);

  /// Mean loss in nats per token over rows 0 .. num_rows - 1 of `fill_row` (called with step 0), which are dealt out
  /// like a training batch. Every rank runs the same number of micro-batches, some of them masked. No dropout.
  /// Collective.
  double evaluate(const FillRow& fill_row, int64_t num_rows);

  int64_t num_steps() const { return num_steps_; }
  int64_t num_skipped() const { return num_skipped_; }

 private:
  void load(parallel::MicroBatch& batch, const FillRow& fill_row, int64_t step, int index, int64_t num_rows) const;
  double forward(int index);
  void backward(int index, float loss_scale);
  void poll();

  TrainerParts parts_;
  TrainerOptions options_;
  FillRow fill_row_;
  std::vector<Action> actions_;
  std::vector<parallel::MicroBatch> batches_;        // by micro-batch
  std::vector<std::vector<parallel::Saved>> saved_;  // by micro-batch, then unit
  int64_t num_steps_ = 0;
  int64_t num_skipped_ = 0;
};

}  // namespace sixfold::train
