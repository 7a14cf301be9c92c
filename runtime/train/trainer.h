// Trainer: the steps of a run. It knows units and a strategy, never a model or a primitive.
//
// One step, on every rank:
//
//   1. rows of this rank are loaded; the number of valid tokens is AllReduced ("dp.tokens"), so that every token's loss
//      can count 1 / valid tokens of the global batch and gradients are summed, never averaged
//   2. the stage's list of actions (pipeline.h): forward m, backward m in turn where one stage has the whole model;
//      between units, and between pieces of the long kernels, the trainer polls the communication, so that it goes on
//      without a thread of its own
//   3. finish_gradients, sums over tensor-parallel ranks that had other positions ("tp.grads"), global norm ("dp.norm"
//      where gradients are in shards, "tp.norm", "pp.norm" over the stages), clipping, optimizer, after_step; the loss
//      is AllReduced meanwhile ("dp.loss" on the last stage, then "pp.loss")
//   4. tokens, loss and norm are read (step_numbers.h): on a GPU the one time in a step that the CPU waits for it, but
//      for collectives that the host itself steps through or stages
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/parallel/pipeline.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/data.h"
#include "runtime/train/lr_schedule.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/step_numbers.h"

namespace sixfold::train {

/// Writes row `row` of the global batch of `step` (both from 0): i32 [seq_len] each; a target below 0 is masked.
using FillRow = std::function<void(int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets)>;

struct TrainerOptions {
  int64_t seq_len = 0;    // of a row
  int sequence_part = 0;  // this rank has positions seq_len / sequence_parts * sequence_part .. of its rows
  int sequence_parts = 1;
  BatchShare share;
  LrSchedule lr;
  double clip_norm = 0;  // 0: gradients are not clipped
  kernels::SquareSums squares = kernels::SquareSums::ByTensor;
  int64_t check_replicas_every = 0;  // steps; 0: never
  parallel::PipelineKind pp_schedule = parallel::PipelineKind::OneFOneB;
  int virtual_stages = 1;  // chunks a stage
};

/// What a trainer works with; all of it outlives the trainer. The trainer says which step it is (comm::StepScope), and
/// records what it computes where the World has a log.
struct TrainerParts {
  comm::World& world;
  comm::Communicator& batch_group;  // the ranks of this stage that share the positions of the global batch
  comm::Communicator* tp_group;     // the ranks that layers are cut over; nullptr: none are
  parallel::UnitList units;         // of the whole model
  parallel::Strategy& strategy;     // with several stages a StageStrategy
  Optimizer& optimizer;
  kernels::Context& context;
  comm::Communicator* pp_group = nullptr;  // the stages, in order; nullptr: one has the whole model
};

struct StepResult {
  int64_t step = 0;      // counted from 1
  double loss = 0;       // nats per valid token, mean over the global batch; NaN from a sum of 2^31 nats on, too
  double grad_norm = 0;  // before clipping
  float lr = 0;
  bool skipped = false;        // the norm was not finite: no parameter has changed, on any rank
  int64_t num_tokens = 0;      // valid tokens of the global batch
  double seconds = 0;          // of this rank, as all below; not those of AfterGradients
  double comm_seconds = 0;     // of operations of steps that ended in this one, side by side or not
  double exposed_seconds = 0;  // of seconds: in which the rank, or the stream of its GPU, did nothing else
  double late_seconds = 0;     // of these: for ranks that came late
  bool knows_late = true;      // late_seconds (comm::CommRow::knows_waits)
  // By the CPU's clock: on a GPU, what issuing them takes.
  double compute_seconds = 0;   // forwards and backwards of this stage
  double pipeline_seconds = 0;  // from the first action of its list to the last

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(num_tokens) / seconds : 0; }
};

class Trainer {
 public:
  /// Has the context's kernels poll as long as the trainer lives. Throws ConfigError for a schedule that cannot be
  /// (check_pipeline_shape).
  Trainer(TrainerParts parts, const TrainerOptions& options, FillRow fill_row);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// A step without a valid token, whose update is skipped: it leaves nothing behind but what first uses take, such as
  /// plans of matrix products. One micro-batch, with interleaved stages all of them. It is not counted: the steps that
  /// follow are those of a run without it, to the bit. Collective over all ranks.
  void warm_up();

  /// Between the gradients and the optimizer of a step: for whoever wants to look at them. Called on every rank. What
  /// it communicates is outside of the step.
  using AfterGradients = std::function<void(int64_t step)>;
  /// Collective over all ranks.
  StepResult step(const AfterGradients& after_gradients = nullptr);

  /// Mean loss in nats per token, on every rank, over rows 0 .. num_rows - 1 of `fill_row` (called with step 0), which
  /// are dealt out like a training batch. Every rank runs the same number of micro-batches, some of them masked. No
  /// dropout. Collective.
  double evaluate(const FillRow& fill_row, int64_t num_rows);

  /// Runs this rank's stage: for forwards alone, as sampling needs them, between steps.
  parallel::Pipeline& pipeline() { return pipeline_; }

  int64_t num_steps() const { return num_steps_; }
  int64_t num_skipped() const { return num_skipped_; }

 private:
  void load(parallel::MicroBatch& batch, const FillRow& fill_row, int64_t step, int index, int64_t num_rows);
  parallel::PipelineRun sum_loss_and_gradients(std::span<const parallel::Action> actions,
                                               std::span<parallel::MicroBatch> batches, int64_t num_rows);
  const std::vector<parallel::UpdateSegment>& finish_gradients();
  void update(const std::vector<parallel::UpdateSegment>& segments, float lr);
  StepNumbers::Values read_numbers();
  parallel::PipelineShape pipeline_shape(int num_micro_batches) const;
  void poll();

  TrainerParts parts_;
  TrainerOptions options_;
  FillRow fill_row_;
  parallel::Pipeline pipeline_;
  std::vector<parallel::Action> actions_;
  std::vector<int32_t> row_tokens_, row_targets_;  // of one whole row
  std::vector<parallel::MicroBatch> batches_;      // by micro-batch
  StepNumbers numbers_;
  comm::Work tokens_sum_, loss_sum_;  // of the step under way
  int64_t num_steps_ = 0;
  int64_t num_skipped_ = 0;
};

}  // namespace sixfold::train
