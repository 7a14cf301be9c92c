#include "runtime/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/comm/observe/clock.h"
#include "runtime/parallel/call_options.h"
#include "runtime/parallel/check_replicas.h"
#include "runtime/parallel/stage_units.h"
#include "runtime/parallel/tp_gradients.h"
#include "runtime/train/gradient_norm.h"
#include "runtime/train/scalar_sum.h"

namespace sixfold::train {

namespace {

/// In all steps so far.
comm::CommRow sum_of_steps(const comm::CommTable& table) {
  comm::CommRow sum;
  for (const comm::CommRow& row : table.rows(comm::CommPhase::Step)) sum.add(row);
  return sum;
}

int64_t num_valid(const parallel::MicroBatch& batch) {
  const int32_t* targets = batch.targets.data<int32_t>();
  return std::count_if(targets, targets + batch.targets.numel(), [](int32_t target) { return target >= 0; });
}

/// The stage of this rank, all of the model where there is one.
std::vector<parallel::UnitList> chunks_of(const TrainerParts& parts, int virtual_stages) {
  const int num_stages = parts.pp_group == nullptr ? 1 : parts.pp_group->size();
  const int stage = parts.pp_group == nullptr ? 0 : parts.pp_group->rank();
  return parallel::stage_chunks(parts.units, stage, num_stages, virtual_stages);
}

}  // namespace

Trainer::Trainer(TrainerParts parts, const TrainerOptions& options, FillRow fill_row)
    : parts_(std::move(parts)),
      options_(options),
      fill_row_(std::move(fill_row)),
      pipeline_({parts_.pp_group, chunks_of(parts_, options.virtual_stages), parts_.strategy, parts_.context,
                 [this] { poll(); }, parts_.world.comm_log()}),
      numbers_(parts_.context) {
  check_batch_share(options_.share);
  SIXFOLD_CHECK_EQ(options_.seq_len % options_.sequence_parts, 0, "positions of a row over ranks");
  const int64_t seq_len = options_.seq_len / options_.sequence_parts;
  row_tokens_.resize(static_cast<size_t>(options_.seq_len));
  row_targets_.resize(row_tokens_.size());
  if (parts_.world.size() > 1) parts_.context.between = [this] { poll(); };
  const int num_micro_batches = options_.share.num_micro_batches();
  const auto rows = static_cast<size_t>(options_.share.micro_batch);
  const Shape shape{options_.share.micro_batch * seq_len};
  actions_ = parallel::pipeline_schedule(pipeline_shape(num_micro_batches))[static_cast<size_t>(pipeline_.stage())];
  for (int m = 0; m < num_micro_batches; ++m) {
    parallel::MicroBatch& batch = batches_.emplace_back();
    batch.tokens = Tensor::of_host(shape, DType::I32);
    batch.targets = Tensor::of_host(shape, DType::I32);
    batch.sample_index.resize(rows);
    batch.seq_len = seq_len;
    batch.seq_offset = options_.sequence_part * seq_len;
  }
}

Trainer::~Trainer() {
  parts_.context.between = nullptr;
}

StepResult Trainer::step(const AfterGradients& after_gradients) {
  const double start = comm::seconds_now();
  comm::CommTable& table = parts_.world.comm_table();
  const comm::CommRow comm_before = sum_of_steps(table);
  StepResult result;
  result.step = num_steps_ + 1;
  result.lr = learning_rate(options_.lr, num_steps_);
  std::optional<comm::StepScope> scope(std::in_place, table, result.step);
  double aside_seconds = 0;

  const parallel::PipelineRun run = sum_loss_and_gradients(actions_, batches_, options_.share.global_batch);
  const std::vector<parallel::UpdateSegment>& segments = finish_gradients();
  if (after_gradients) {  // what it takes and communicates is not the step's
    scope.reset();
    const double since = comm::seconds_now();
    after_gradients(result.step);
    aside_seconds = comm::seconds_now() - since;
    scope.emplace(table, result.step);
  }
  update(segments, result.lr);
  ++num_steps_;
  if (options_.check_replicas_every > 0 && num_steps_ % options_.check_replicas_every == 0) {
    parallel::check_replicas(parts_.units, parts_.strategy, parts_.batch_group, parts_.tp_group, parts_.context,
                             num_steps_);
  }

  const StepNumbers::Values numbers = read_numbers();
  parts_.world.count_stalls();
  result.num_tokens = numbers.num_tokens;
  result.loss = numbers.loss / static_cast<double>(std::max<int64_t>(numbers.num_tokens, 1));
  result.grad_norm = std::sqrt(numbers.sum_of_squares);
  result.skipped = !std::isfinite(numbers.sum_of_squares);
  if (result.skipped) {
    parts_.optimizer.skipped();
    ++num_skipped_;
  }
  scope.reset();
  const comm::CommRow comm_after = sum_of_steps(table);
  result.comm_seconds = comm_after.seconds - comm_before.seconds;
  result.exposed_seconds = comm_after.exposed_seconds - comm_before.exposed_seconds;
  result.late_seconds = comm_after.exposed_wait_seconds - comm_before.exposed_wait_seconds;
  result.knows_late = comm_after.knows_waits;
  result.compute_seconds = run.compute_seconds;
  result.pipeline_seconds = run.seconds;
  result.seconds = comm::seconds_now() - start - aside_seconds;
  return result;
}

void Trainer::warm_up() {
  // One micro-batch where the schedule allows it. To load a kernel, a GPU may have to end those that run: none should
  // wait there for a message that this stage, or another one that loads, sends only afterwards.
  const size_t count = options_.pp_schedule == parallel::PipelineKind::Interleaved ? batches_.size() : 1;
  const auto schedule = parallel::pipeline_schedule(pipeline_shape(static_cast<int>(count)));
  sum_loss_and_gradients(schedule[static_cast<size_t>(pipeline_.stage())], {batches_.data(), count}, 0);
  const std::vector<parallel::UpdateSegment>& segments = finish_gradients();
  numbers_.skip_update();
  update(segments, 0);
  parts_.optimizer.skipped();
  parts_.strategy.settle();
  read_numbers();
}

/// Forwards and backwards of the next step's rows, those from num_rows on masked: `actions`, this stage's list, over
/// `batches`. Sums over ranks are under way when it returns.
parallel::PipelineRun Trainer::sum_loss_and_gradients(std::span<const parallel::Action> actions,
                                                      std::span<parallel::MicroBatch> batches, int64_t num_rows) {
  kernels::Context& context = parts_.context;
  int64_t num_tokens = 0;  // of this rank
  for (size_t m = 0; m < batches.size(); ++m) {
    load(batches[m], fill_row_, num_steps_, static_cast<int>(m), num_rows);
    num_tokens += num_valid(batches[m]);
  }
  const auto start_sum = [&](const Tensor& numbers, const char* tag) {
    return parts_.batch_group.all_reduce(numbers, numbers, ReduceOp::Sum, parallel::call_options(context, tag));
  };
  numbers_.start(num_tokens);
  tokens_sum_ = start_sum(numbers_.num_tokens, "dp.tokens");
  parts_.strategy.begin_step(static_cast<int>(batches.size()));
  bool has_scale = false;
  const parallel::PipelineRun run = pipeline_.run(actions, batches, [&] {
    if (!std::exchange(has_scale, true)) {
      tokens_sum_.wait();
      // A batch without a single valid token has no loss and no gradient: 0.
      kernels::reciprocal(context, numbers_.num_tokens, numbers_.token_scale);
    }
    return numbers_.token_scale;
  });
  if (pipeline_.has_loss()) {
    kernels::to_fixed_point(context, run.losses, parts_.batch_group.size(), numbers_.loss);
    loss_sum_ = start_sum(numbers_.loss, "dp.loss");
  }
  return run;
}

/// What is to be updated, with gradients of the whole batch, and their factor in the step's numbers.
const std::vector<parallel::UpdateSegment>& Trainer::finish_gradients() {
  const std::vector<parallel::UpdateSegment>& segments = parts_.strategy.finish_gradients();
  parallel::sum_partial_gradients(segments, parts_.tp_group, parts_.context);
  gradient_sum_of_squares(parts_.context, segments, {parts_.strategy.shard_group(), parts_.tp_group, parts_.pp_group},
                          options_.squares, numbers_.squares);
  kernels::clip_factor(parts_.context, numbers_.squares, options_.clip_norm, numbers_.grad_scale);
  return segments;
}

void Trainer::update(const std::vector<parallel::UpdateSegment>& segments, float lr) {
  {
    const comm::SpanScope span(parts_.world.comm_log(), comm::ComputeSpan::Kind::Optimizer, -1, -1);
    parts_.optimizer.update(parts_.context, segments, lr, numbers_.grad_scale);
  }
  parts_.strategy.after_step();
}

/// Ends the sums of the step.
StepNumbers::Values Trainer::read_numbers() {
  tokens_sum_.wait();
  loss_sum_.wait();
  if (parts_.pp_group != nullptr) {
    parts_.pp_group
        ->all_reduce(numbers_.loss, numbers_.loss, ReduceOp::Sum, parallel::call_options(parts_.context, "pp.loss"))
        .wait();
  }
  return numbers_.read();
}

double Trainer::evaluate(const FillRow& fill_row, int64_t num_rows) {
  // As many micro-batches on every rank, so that a strategy may communicate in its hooks.
  const int64_t rows_at_once = options_.share.micro_batch * options_.share.dp_size;
  const auto num_micro_batches = static_cast<size_t>((num_rows + rows_at_once - 1) / rows_at_once);
  double loss_of_rank = 0, tokens_of_rank = 0;
  for (size_t first = 0; first < num_micro_batches; first += batches_.size()) {
    const size_t count = std::min(batches_.size(), num_micro_batches - first);
    for (size_t i = 0; i < count; ++i) {
      load(batches_[i], fill_row, 0, static_cast<int>(first + i), num_rows);
      batches_[i].training = false;
      tokens_of_rank += static_cast<double>(num_valid(batches_[i]));
    }
    const auto schedule = parallel::forward_schedule(pipeline_shape(static_cast<int>(count)));
    const auto run = pipeline_.run(schedule[static_cast<size_t>(pipeline_.stage())], batches_, nullptr);
    const Tensor losses = kernels::on_host(parts_.context, run.losses);
    for (int64_t i = 0; i < losses.numel(); ++i) loss_of_rank += static_cast<double>(losses.data<float>()[i]);
  }
  for (parallel::MicroBatch& batch : batches_) batch.training = true;
  const kernels::Place place = parts_.context;
  double loss = sum_over_ranks(place, parts_.batch_group, loss_of_rank, "dp.eval");
  if (parts_.pp_group != nullptr) loss = sum_over_ranks(place, *parts_.pp_group, loss, "pp.loss");
  const double tokens = sum_over_ranks(place, parts_.batch_group, tokens_of_rank, "dp.eval");
  parts_.world.count_stalls();
  return loss / std::max(tokens, 1.0);
}

/// Fills micro-batch `index` of this rank with its positions; rows from num_rows on are masked.
void Trainer::load(parallel::MicroBatch& batch, const FillRow& fill_row, int64_t step, int index, int64_t num_rows) {
  batch.step = step;
  for (size_t i = 0; i < batch.sample_index.size(); ++i) {
    const int64_t row = options_.share.global_row(index, static_cast<int64_t>(i));
    const auto place = static_cast<std::ptrdiff_t>(i) * batch.seq_len;
    int32_t* tokens = batch.tokens.data<int32_t>() + place;
    int32_t* targets = batch.targets.data<int32_t>() + place;
    batch.sample_index[i] = step * options_.share.global_batch + row;
    if (row < num_rows) {
      fill_row(step, row, row_tokens_, row_targets_);
      std::copy_n(row_tokens_.begin() + batch.seq_offset, batch.seq_len, tokens);
      std::copy_n(row_targets_.begin() + batch.seq_offset, batch.seq_len, targets);
    } else {
      std::fill_n(tokens, batch.seq_len, 0);
      std::fill_n(targets, batch.seq_len, -1);
    }
  }
  batch.to_device(parts_.context);
}

parallel::PipelineShape Trainer::pipeline_shape(int num_micro_batches) const {
  return {options_.pp_schedule, pipeline_.num_stages(), num_micro_batches, options_.virtual_stages};
}

/// Lets outstanding communication go on. The time it takes counts as exposed.
void Trainer::poll() {
  if (parts_.world.size() > 1) parts_.world.progress();
}

}  // namespace sixfold::train
