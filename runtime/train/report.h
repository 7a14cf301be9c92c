// What a run shows at its end: tables for people. The same numbers go to the log (step_log.h).
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/comm/observe/comm_table.h"
#include "runtime/core/memory.h"
#include "runtime/parallel/pipeline_schedule.h"
#include "runtime/parallel/predict.h"

namespace sixfold::train {

struct MemoryRow {
  Category category = Category::Other;
  size_t peak_bytes = 0;
  std::optional<double> predicted_bytes;  // where there is a formula
};
/// The peaks of one rank's memory beside the formulas.
std::vector<MemoryRow> memory_rows(const Memory& memory, const parallel::MemoryPrediction& predicted);

/// What one rank has sent under a tag beside the strategy's formula, per step.
struct TrafficRow {
  std::string tag;
  double sent_bytes = 0;                        // counted in the links
  double payload_bytes = 0, padding_bytes = 0;  // predicted: the formula, and what padding adds
};
/// `rows` are those of `num_steps` steps. Empty where links are not counted (mpi).
std::vector<TrafficRow> traffic_rows(const std::vector<comm::CommRow>& rows,
                                     const std::vector<parallel::TagTraffic>& predicted, int64_t num_steps);

struct Evaluation {
  int64_t step = 0;  // after so many steps
  double loss = 0;   // nats per token
};

/// A run on several stages.
struct PipelineSummary {
  parallel::PipelineShape shape;
  // Measured: the share of the stages' time, from first to last action, outside forwards and backwards; what strategies
  // wait for within these counts as work. Unknown on GPUs, where the CPU is ahead of what it issues.
  std::optional<double> bubble;
};

/// Of one rank, where it says nothing else.
struct RunSummary {
  int64_t num_steps = 0;
  int64_t num_skipped = 0;              // steps without an update, for a gradient that was not finite
  std::vector<Evaluation> evaluations;  // the last one at the end of training; none: nothing was held out
  std::string strategy;                 // parallel::strategy_name
  uint64_t weights_hash = 0;            // over all gathered weights in name order
  uint64_t state_hash = 0;              // over the optimizer's moments, too
  int num_ranks = 1;
  int num_threads = 1;  // of each rank's kernels
  int64_t num_parameters = 0;
  double total_step_seconds = 0;   // all steps together
  double median_step_seconds = 0;  // of all steps
  double step_seconds = 0;         // mean, without the first step (where there are more), which touches fresh memory
  double tokens_per_second = 0;    // of all ranks, over the same steps
  double flops_per_token = 0;
  double gemm_gflops = 0;           // GEMM rate of all ranks together, measured in the same run; 0: it was not
  std::vector<comm::CommRow> comm;  // sums over all steps (comm::CommPhase::Step)
  double comm_busy_seconds = 0;     // in steps: in which any operation was under way (comm::CommTable::busy_seconds)
  std::vector<comm::CommRow> comm_outside;  // of start-up and validation
  std::vector<TrafficRow> traffic;
  std::vector<MemoryRow> memory;
  size_t peak_bytes = 0;                    // of all categories together, at any one time
  std::optional<PipelineSummary> pipeline;  // with several stages
  size_t resident_bytes = 0;  // of the process after training, which is all ranks where they are threads; 0: not known

  /// Over all steps, the first included: what means of communication are to be compared with.
  double mean_step_seconds() const { return num_steps > 0 ? total_step_seconds / static_cast<double>(num_steps) : 0; }
  /// Share of the measured GEMM rate that training reached.
  double mfu() const { return gemm_gflops > 0 ? tokens_per_second * flops_per_token / (gemm_gflops * 1e9) : 0; }
  std::optional<double> validation_loss() const {
    return evaluations.empty() ? std::nullopt : std::optional(evaluations.back().loss);
  }
};

/// Of an even number the mean of the middle two; 0 of none.
double median(std::vector<double> values);

/// The rows added up by primitive and backend, without tag and algorithm.
std::vector<comm::CommRow> by_primitive(const std::vector<comm::CommRow>& rows);

/// Over all operations of all steps. Seconds in which several were under way count once.
struct CommTotals {
  double seconds = 0, exposed_seconds = 0, exposed_wait_seconds = 0;
  double sent_intra_bytes = 0, sent_inter_bytes = 0;
  bool counts_links = true, knows_inter = true, knows_waits = true;  // as in comm::CommRow, of all rows
};
CommTotals comm_totals(const RunSummary& summary);
/// 1 - exposed / communication, from 0 to 1; 1 where there was no communication.
double overlap_share(double exposed_seconds, double seconds);

/// One line a tag, primitive and algorithm, means over all steps: calls, MB (10^6 bytes), sent MB and predicted sent MB
/// of this rank, time and exposed time, algbw and busbw (GB/s, 10^9, as nccl-tests defines them), and the exposed share
/// of the mean step. "-": not known, or not had.
void print_comm_table(std::ostream& out, const RunSummary& summary);
/// The same of what was outside the steps, as sums, without rates and shares; nothing where there was nothing.
void print_outside_table(std::ostream& out, const RunSummary& summary);
/// One line a primitive: calls, MB, MB sent inside and between nodes, time, exposed time, the part of it that was spent
/// waiting for ranks that came late, per step; and the share of the time that was not exposed. Then one line on all of
/// them together.
void print_primitive_table(std::ostream& out, const RunSummary& summary);
/// MB sent under each tag of gradients and parameters per step, beside the formula and the padding.
void print_traffic_table(std::ostream& out, const RunSummary& summary);
/// Peak and predicted MB by category, and of the process.
void print_memory_table(std::ostream& out, const RunSummary& summary);
/// One line: the schedule and its bubble, measured and by the formula.
void print_pipeline(std::ostream& out, const PipelineSummary& pipeline);
/// Speed: tokens/s, step time, FLOP rate beside the GEMM rate.
void print_speed(std::ostream& out, const RunSummary& summary);

/// Lays out rows of cells in columns, the first `num_left` of them flush left, the others flush right, two blanks
/// between.
void print_columns(std::ostream& out, const std::vector<std::vector<std::string>>& rows, size_t num_left);

}  // namespace sixfold::train
