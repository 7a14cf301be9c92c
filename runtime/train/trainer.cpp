#include "runtime/train/trainer.h"

#include <algorithm>
#include <chrono>

#include "runtime/parallel/check_replicas.h"
#include "runtime/train/scalar_sum.h"

namespace sixfold::train {

namespace {

struct CommSeconds {
  double total = 0, exposed = 0;
};
CommSeconds comm_seconds(const comm::CommTable& table) {
  CommSeconds seconds;
  for (const comm::CommRow& row : table.rows()) {
    seconds.total += row.seconds;
    seconds.exposed += row.exposed_seconds;
  }
  return seconds;
}

int64_t num_valid(const parallel::MicroBatch& batch) {
  const int32_t* targets = batch.targets.data<int32_t>();
  return std::count_if(targets, targets + batch.targets.numel(), [](int32_t target) { return target >= 0; });
}

}  // namespace

std::vector<Action> single_stage_actions(int num_micro_batches) {
  std::vector<Action> actions;
  for (int m = 0; m < num_micro_batches; ++m) {
    actions.push_back({Action::Kind::Forward, m});
    actions.push_back({Action::Kind::Backward, m});
  }
  return actions;
}

Trainer::Trainer(TrainerParts parts, const TrainerOptions& options, FillRow fill_row)
    : parts_(std::move(parts)), options_(options), fill_row_(std::move(fill_row)) {
  check_batch_share(options_.share);
  if (parts_.world.size() > 1) parts_.context.between = [this] { poll(); };
  const int num_micro_batches = options_.share.num_micro_batches();
  const auto rows = static_cast<size_t>(options_.share.micro_batch);
  const Shape shape{options_.share.micro_batch * options_.seq_len};
  actions_ = single_stage_actions(num_micro_batches);
  for (int m = 0; m < num_micro_batches; ++m) {
    parallel::MicroBatch& batch = batches_.emplace_back();
    batch.tokens = Tensor::empty(shape, DType::I32, parts_.context.memory, Category::Other);
    batch.targets = Tensor::empty(shape, DType::I32, parts_.context.memory, Category::Other);
    batch.sample_index.resize(rows);
    batch.seq_len = options_.seq_len;
    saved_.emplace_back(parts_.units.size());
  }
}

Trainer::~Trainer() {
  parts_.context.between = nullptr;
}

StepResult Trainer::step(const AfterGradients& after_gradients) {
  const auto start = std::chrono::steady_clock::now();
  const CommSeconds comm_before = comm_seconds(parts_.world.comm_table());
  const int num_micro_batches = options_.share.num_micro_batches();
  StepResult result;
  result.step = num_steps_ + 1;
  result.lr = learning_rate(options_.lr, num_steps_);

  for (int m = 0; m < num_micro_batches; ++m) {
    load(batches_[static_cast<size_t>(m)], fill_row_, num_steps_, m, options_.share.global_batch);
    result.num_tokens += num_valid(batches_[static_cast<size_t>(m)]);
  }
  const comm::Buf tokens_buf(&result.num_tokens, 1, DType::I64);
  comm::Work tokens_work = parts_.batch_group.all_reduce(tokens_buf, tokens_buf, ReduceOp::Sum, {.tag = "dp.tokens"});

  parts_.strategy.begin_step(num_micro_batches);
  double loss_of_rank = 0;
  int num_forwards = 0;
  ScalarSum loss_sum;
  for (const Action& action : actions_) {
    if (action.kind == Action::Kind::Forward) {
      loss_of_rank += forward(action.micro_batch);
      if (++num_forwards == num_micro_batches) loss_sum.start(parts_.batch_group, loss_of_rank, "dp.loss");
    } else {
      tokens_work.wait();
      // A batch without a single valid token has no loss and no gradient.
      backward(action.micro_batch, result.num_tokens > 0 ? 1.0f / static_cast<float>(result.num_tokens) : 0.0f);
    }
  }

  const std::vector<parallel::UpdateSegment>& segments = parts_.strategy.finish_gradients();
  const double sum_of_squares =
      gradient_sum_of_squares(parts_.context, segments, parts_.strategy.shard_group(), options_.norm_order);
  const Clip clip = clip_factor(sum_of_squares, options_.clip_norm);
  if (after_gradients) after_gradients(result.step);
  if (clip.finite) {
    parts_.optimizer.update(parts_.context, segments, result.lr, clip.scale);
  } else {
    ++num_skipped_;
  }
  parts_.strategy.after_step();
  ++num_steps_;
  if (options_.check_replicas_every > 0 && num_steps_ % options_.check_replicas_every == 0) {
    parallel::check_replicas(parts_.units, parts_.strategy, parts_.batch_group, parts_.context.memory, num_steps_);
  }

  result.loss = loss_sum.wait() / static_cast<double>(std::max<int64_t>(result.num_tokens, 1));
  result.grad_norm = clip.norm;
  result.skipped = !clip.finite;
  const CommSeconds comm_after = comm_seconds(parts_.world.comm_table());
  result.comm_seconds = comm_after.total - comm_before.total;
  result.exposed_seconds = comm_after.exposed - comm_before.exposed;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

double Trainer::evaluate(const FillRow& fill_row, int64_t num_rows) {
  // As many micro-batches on every rank, so that a strategy may communicate in its hooks.
  const int64_t rows_at_once = options_.share.micro_batch * options_.share.dp_size;
  const auto num_micro_batches = static_cast<int>((num_rows + rows_at_once - 1) / rows_at_once);
  parallel::MicroBatch& batch = batches_.front();
  batch.training = false;
  double loss_of_rank = 0, tokens_of_rank = 0;
  for (int m = 0; m < num_micro_batches; ++m) {
    load(batch, fill_row, 0, m, num_rows);
    tokens_of_rank += static_cast<double>(num_valid(batch));
    loss_of_rank += forward(0);
  }
  batch.training = true;
  const double loss = sum_over_ranks(parts_.batch_group, loss_of_rank, "dp.eval");
  const double tokens = sum_over_ranks(parts_.batch_group, tokens_of_rank, "dp.eval");
  return loss / std::max(tokens, 1.0);
}

/// Fills micro-batch `index` of this rank; rows from num_rows on are masked.
void Trainer::load(parallel::MicroBatch& batch, const FillRow& fill_row, int64_t step, int index,
                   int64_t num_rows) const {
  const auto seq_len = static_cast<size_t>(options_.seq_len);
  batch.step = step;
  for (size_t i = 0; i < batch.sample_index.size(); ++i) {
    const int64_t row = options_.share.global_row(index, static_cast<int64_t>(i));
    const std::span<int32_t> tokens(batch.tokens.data<int32_t>() + i * seq_len, seq_len);
    const std::span<int32_t> targets(batch.targets.data<int32_t>() + i * seq_len, seq_len);
    batch.sample_index[i] = step * options_.share.global_batch + row;
    if (row < num_rows) {
      fill_row(step, row, tokens, targets);
    } else {
      std::fill(tokens.begin(), tokens.end(), 0);
      std::fill(targets.begin(), targets.end(), -1);
    }
  }
}

/// Returns the sum of the losses of the micro-batch's valid tokens.
double Trainer::forward(int index) {
  const auto m = static_cast<size_t>(index);
  Tensor x;
  for (size_t u = 0; u < parts_.units.size(); ++u) {
    parts_.strategy.before_forward(*parts_.units[u], index);
    x = parts_.units[u]->forward(parts_.context, x, batches_[m], saved_[m][u]);
    parts_.strategy.after_forward(*parts_.units[u], index);
    poll();
  }
  return static_cast<double>(x.data<float>()[0]);
}

void Trainer::backward(int index, float loss_scale) {
  const auto m = static_cast<size_t>(index);
  const auto ready = [&](parallel::Parameter& parameter) {
    parts_.strategy.gradient_ready(parameter, index);
    poll();
  };
  Tensor dy = Tensor::empty({1}, DType::F32, parts_.context.memory, Category::Activations);
  dy.data<float>()[0] = loss_scale;
  for (size_t u = parts_.units.size(); u-- > 0;) {
    parallel::Unit& unit = *parts_.units[u];
    parts_.strategy.before_backward(unit, index);
    dy = unit.backward_input(parts_.context, dy, batches_[m], saved_[m][u]);
    poll();
    unit.backward_weights(parts_.context, batches_[m], saved_[m][u], ready);
    parts_.strategy.after_backward(unit, index);
    poll();
  }
}

/// Lets outstanding communication go on. The time it takes counts as exposed.
void Trainer::poll() {
  if (parts_.world.size() > 1) parts_.world.progress();
}

}  // namespace sixfold::train
