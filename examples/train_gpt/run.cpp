#include "examples/train_gpt/run.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <numeric>

#include "examples/train_gpt/dump.h"
#include "examples/train_gpt/predictions.h"
#include "examples/train_gpt/rank_device.h"
#include "kernels/gemm_rate.h"
#include "models/gpt.h"
#include "models/sample.h"
#include "runtime/core/env.h"
#include "runtime/parallel/check_replicas.h"
#include "runtime/parallel/init.h"
#include "runtime/parallel/stage_strategy.h"
#include "runtime/train/console.h"
#include "runtime/train/report.h"
#include "runtime/train/scalar_sum.h"
#include "runtime/train/step_log.h"

namespace sixfold::train_gpt {

namespace {

// mpirun gives its processes a terminal of their own, whatever its output goes to: plain lines there.
bool stdout_is_live() {
  const Environment environment = read_environment();
  return isatty(STDOUT_FILENO) == 1 && !environment.no_color && !environment.launcher_world_size;
}

// Bytes as a terminal can show them. Tokens that are no byte, of which there are some in a larger vocabulary, become
// '?'.
std::string text_of(const std::vector<int32_t>& tokens) {
  std::string bytes;
  for (int32_t token : tokens) bytes += token < train::kNumByteTokens ? static_cast<char>(token) : '?';
  return train::printable(bytes);
}

std::string numbers_of(const std::vector<int32_t>& tokens) {
  std::string text;
  for (int32_t token : tokens) text += (text.empty() ? "" : " ") + std::to_string(token);
  return text;
}

// The run of one rank: its parts, made in the order in which they need one another, and its phases.
class Run {
 public:
  Run(comm::World& world, comm::Communicator& group, const Plan& plan, const train::CorpusSplit& text)
      : world_(world),
        group_(group),
        plan_(plan),
        text_(text),
        train_windows_(text.train, plan.model.seq_len),
        eval_windows_(text.validation, plan.model.seq_len),
        device_(world, group, plan),
        context_(device_.context(plan)),
        mesh_(group, plan.mesh),
        model_(plan.model, parallel::TpGroup(&mesh_.tp_group(), plan.tp), &mesh_.sp_group()),
        units_(model_.units()),
        stage_(units_, mesh_.coordinates().pp, plan.mesh.pp, plan.pipeline.virtual_stages),
        strategy_(stage_, device_.place(), mesh_.pp_group(), mesh_.data_group(), plan.strategy),
        optimizer_(train::make_optimizer(plan.optimizer, strategy_.state_elements(), device_.place())),
        order_(train_windows_.count(), plan.options.global_batch, plan.options.seed, !plan.options.no_shuffle),
        trainer_({world, mesh_.data_group(), tp_group(), units_, strategy_, *optimizer_, context_, pp_group()},
                 trainer_options(),
                 [this](int64_t step, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
                   train_windows_.copy(order_.window(step, row), tokens, targets);
                 }),
        console_(std::cout, {stdout_is_live(), plan.options.steps}) {}

  RunResult run() {
    const Options& options = plan_.options;
    if (prints()) print_start();
    if (wants_gemm_rate()) measure_gemm();
    if (plan_.records.any()) clock_offset_ = comm::measure_clock_offset(world_);
    world_.count_stalls();        // those of what was before
    world_.comm_table().reset();  // the table does not tell how ranks met, and neither does the log
    if (world_.comm_log() != nullptr) world_.comm_log()->clear();
    strategy_.load_values(
        [&](parallel::Parameter& parameter) { parallel::initialize(context_, parameter, options.seed); });
    if (is_first() && !options.log.empty()) log_ = std::make_unique<train::StepLog>(options.log);
    if (!options.dump.empty()) {
      dump_ = std::make_unique<Dump>(options.dump, model_.parameters_by_name(), strategy_, tp_group(), device_.place(),
                                     is_first());
    }
    if (device_.queue() != nullptr)
      trainer_.warm_up();  // libraries plan, and load kernels, when they first see a shape
    group_.barrier();      // no rank's start-up is the first step's
    for (int64_t step = 1; step <= options.steps; ++step) train_step(step);
    finish();
    return {std::move(summary_), std::move(steps_)};
  }

 private:
  bool is_first() const { return group_.rank() == 0; }
  bool wants_gemm_rate() const {
    const Options& options = plan_.options;
    return !options.no_gemm_rate && (!options.quiet || !options.log.empty());
  }
  bool prints() const { return is_first() && !plan_.options.quiet; }

  // nullptr where one stage has the whole model: then nothing need be communicated in that group.
  comm::Communicator* pp_group() { return plan_.mesh.pp > 1 ? &mesh_.pp_group() : nullptr; }
  // nullptr where no layer is cut: then nothing need be communicated in that group.
  comm::Communicator* tp_group() { return plan_.mesh.tp > 1 ? &mesh_.tp_group() : nullptr; }

  train::TrainerOptions trainer_options() {
    train::TrainerOptions options = plan_.trainer;
    options.share.dp_rank = mesh_.coordinates().dp;
    options.sequence_part = mesh_.coordinates().sp;
    return options;
  }

  // ", pp 1 x dp 2 x sp 1 x tp 2": where there is more than data parallelism.
  std::string axes() const {
    const parallel::MeshShape& mesh = plan_.mesh;
    if (mesh.pp * mesh.sp * mesh.tp == 1) return "";
    return ", pp " + std::to_string(mesh.pp) + " x dp " + std::to_string(mesh.dp) + " x sp " + std::to_string(mesh.sp) +
           " x tp " + std::to_string(mesh.tp) + (plan_.tp.sequence_parallel ? " (sequence parallel)" : "");
  }

  void print_start() {
    const models::GptConfig& model = plan_.model;
    char text[400];
    std::snprintf(text, sizeof(text),
                  "model: %lld layers, dim %lld, %lld heads, vocabulary %lld, %.3f M parameters; %d ranks (%s) x %d "
                  "threads, %s%s\n"
                  "data: %s, %lld rows of %lld tokens (%lld held out), %lld steps an epoch",
                  static_cast<long long>(model.num_layers), static_cast<long long>(model.dim),
                  static_cast<long long>(model.num_heads), static_cast<long long>(model.vocab_size),
                  static_cast<double>(model_.num_parameters()) / 1e6, group_.size(), world_.kind().c_str(),
                  plan_.num_threads, parallel::strategy_name(plan_.strategy).c_str(), axes().c_str(),
                  plan_.options.data.c_str(), static_cast<long long>(train_windows_.count()),
                  static_cast<long long>(model.seq_len), static_cast<long long>(eval_windows_.count()),
                  static_cast<long long>(order_.steps_per_epoch()));
    console_.line(text);
  }

  // All ranks at once, since that is how they train; in a Memory of its own, so that peaks are those of training.
  void measure_gemm() {
    const std::unique_ptr<Memory> scratch = device_.scratch();
    kernels::Context context{*scratch, plan_.num_threads, nullptr, device_.queue(), plan_.dtype};
    group_.barrier();
    const double gflops = kernels::measure_gemm_rate(context);
    const double of_all_ranks = train::sum_over_ranks(device_.place(), group_, gflops, "gemm_rate");
    summary_.gemm_gflops = std::max(summary_.gemm_gflops, of_all_ranks);
  }

  void train_step(int64_t step) {
    const auto after_gradients = [this](int64_t at) {
      if (dump_ && at == 1) dump_->gradients();
    };
    const train::StepResult result = trainer_.step(after_gradients);
    if (step > 1 || plan_.options.steps == 1) {  // the first step touches fresh memory
      seconds_ += result.seconds;
      num_tokens_ += result.num_tokens;
      compute_seconds_ += result.compute_seconds;
      pipeline_seconds_ += result.pipeline_seconds;
    }
    steps_.push_back(result);
    if (log_) log_->step(result);
    if (prints()) console_.step(result);
    const int64_t every = plan_.options.eval_every;
    if (step == plan_.options.steps || (every > 0 && step % every == 0)) evaluate(step);
  }

  void evaluate(int64_t step) {
    if (eval_windows_.count() == 0) return;
    // Rows from all over the held-out tail.
    const int64_t num_rows = std::min(plan_.options.eval_windows, eval_windows_.count());
    const auto fill_row = [&](int64_t, int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
      eval_windows_.copy(row * eval_windows_.count() / num_rows, tokens, targets);
    };
    const double loss = trainer_.evaluate(fill_row, num_rows);
    summary_.evaluations.push_back({step, loss});
    if (!is_first() || (plan_.options.quiet && step < plan_.options.steps)) return;
    char text[100];
    std::snprintf(text, sizeof(text), "validation loss %.4f nats per %s after step %lld (%lld rows)", loss,
                  text_.validation.unit(), static_cast<long long>(step), static_cast<long long>(num_rows));
    console_.line(text);
  }

  void finish() {
    const Options& options = plan_.options;
    const double steps = static_cast<double>(std::max<int64_t>(options.steps - 1, 1));
    strategy_.settle();  // before its bytes are read
    world_.count_stalls();
    summary_.num_steps = trainer_.num_steps();
    summary_.num_skipped = trainer_.num_skipped();
    summary_.num_ranks = group_.size();
    summary_.num_threads = plan_.num_threads;
    summary_.num_parameters = model_.num_parameters();
    summary_.step_seconds = seconds_ / steps;
    summarize_steps();
    summary_.tokens_per_second = seconds_ > 0 ? static_cast<double>(num_tokens_) / seconds_ : 0;
    summary_.flops_per_token = static_cast<double>(model_.flops_per_token(plan_.model.seq_len));
    summary_.comm = world_.comm_table().rows(comm::CommPhase::Step);
    summary_.comm_outside = world_.comm_table().rows(comm::CommPhase::Outside);
    summary_.comm_busy_seconds = world_.comm_table().busy_seconds(comm::CommPhase::Step);
    comm::write_record_files(plan_.records, world_, clock_offset_);
    summarize_strategy();
    summarize_pipeline();
    // After the tables are taken, which do not tell of what follows. Machines are shared: the better of the rates
    // before and after training is nearer to what this one can do.
    if (wants_gemm_rate()) measure_gemm();
    summary_.weights_hash = parallel::hash_weights(units_, strategy_, {}, tp_group(), device_.place());
    summary_.state_hash = parallel::hash_weights(units_, strategy_, optimizer_->moments(), tp_group(), device_.place());
    if (dump_) dump_->weights();
    if (log_) log_->summary(summary_);
    const std::string text = num_sampled() > 0 && !options.quiet ? generate() : "";
    if (prints()) print_end(text);
  }

  void summarize_steps() {
    std::vector<double> seconds;
    for (const train::StepResult& step : steps_) seconds.push_back(step.seconds);
    summary_.total_step_seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    summary_.median_step_seconds = train::median(seconds);
  }

  // What has been sent and kept, beside the formulas.
  void summarize_strategy() {
    summary_.strategy = parallel::strategy_name(plan_.strategy);
    const Predictions predictions = predict(plan_, mesh_, stage_);
    summary_.traffic = train::traffic_rows(summary_.comm, predictions.traffic, trainer_.num_steps());
    summary_.memory = train::memory_rows(device_.memory(), predictions.memory);
    summary_.peak_bytes = device_.memory().peak_total_bytes();
    group_.barrier();  // all ranks are here, and have mapped what they need of one another
    summary_.resident_bytes = process_resident_bytes();
  }

  // The bubble over all stages of this rank's pipeline.
  void summarize_pipeline() {
    if (pp_group() == nullptr) return;
    train::PipelineSummary& pipeline = summary_.pipeline.emplace();
    pipeline.shape = plan_.pipeline;
    if (device_.queue() != nullptr) return;
    const double compute = train::sum_over_ranks(device_.place(), *pp_group(), compute_seconds_, "summary");
    const double total = train::sum_over_ranks(device_.place(), *pp_group(), pipeline_seconds_, "summary");
    pipeline.bubble = total > 0 ? 1 - compute / total : 0;
  }

  int64_t num_sampled() const { return plan_.options.sample.value_or(text_.train.are_bytes() ? 200 : 0); }

  // What follows the end of a line or, where tokens are no bytes or that one is none of the model's, the first token of
  // the data.
  std::string generate() {
    const bool are_bytes = text_.train.are_bytes();
    models::SampleOptions sampling;
    sampling.num_tokens = num_sampled();
    sampling.seed = plan_.options.seed;
    const int32_t first = are_bytes && '\n' < plan_.model.vocab_size ? '\n' : text_.train[0];
    const std::vector<int32_t> tokens = models::sample(model_, context_, {first}, sampling, &trainer_.pipeline());
    return are_bytes ? text_of(tokens) : numbers_of(tokens);
  }

  void print_end(const std::string& sampled) {
    if (!sampled.empty()) std::cout << "\nsample\n" << sampled << "\n";
    std::cout << "\n";
    train::print_comm_table(std::cout, summary_);
    train::print_primitive_table(std::cout, summary_);
    train::print_outside_table(std::cout, summary_);
    if (!summary_.traffic.empty()) {
      std::cout << "\n";
      train::print_traffic_table(std::cout, summary_);
    }
    std::cout << "\n";
    train::print_memory_table(std::cout, summary_);
    if (summary_.pipeline) {
      std::cout << "\n";
      train::print_pipeline(std::cout, *summary_.pipeline);
    }
    std::cout << "\n";
    train::print_speed(std::cout, summary_);
    if (summary_.num_skipped > 0) {
      std::cout << summary_.num_skipped << " of " << summary_.num_steps << " steps skipped: gradient not finite\n";
    }
    std::cout << std::flush;
  }

  comm::World& world_;
  comm::Communicator& group_;
  const Plan& plan_;
  const train::CorpusSplit text_;
  const train::Windows train_windows_, eval_windows_;
  RankDevice device_;
  kernels::Context context_;
  parallel::Mesh mesh_;
  models::Gpt model_;
  const parallel::UnitList units_;
  const parallel::StageUnits stage_;
  parallel::StageStrategy strategy_;
  std::unique_ptr<train::Optimizer> optimizer_;
  const train::BatchOrder order_;
  train::Trainer trainer_;
  train::Console console_;
  std::unique_ptr<train::StepLog> log_;  // rank 0 with --log
  std::unique_ptr<Dump> dump_;           // with --dump
  comm::ClockOffset clock_offset_;       // with records
  train::RunSummary summary_;
  std::vector<train::StepResult> steps_;
  double seconds_ = 0;      // of the steps that speed is taken from
  int64_t num_tokens_ = 0;  // in these, as the next
  double compute_seconds_ = 0, pipeline_seconds_ = 0;
};

}  // namespace

RunResult run_rank(comm::World& world, comm::Communicator& group, const Plan& plan, const train::CorpusSplit& text) {
  return Run(world, group, plan, text).run();
}

}  // namespace sixfold::train_gpt
