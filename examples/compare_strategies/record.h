// What is known of one strategy after its steps: numbers of all ranks, put together on the first.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "examples/compare_strategies/timeline.h"
#include "runtime/parallel/mesh.h"

namespace sixfold::compare_strategies {

// One rule for all figures of a step, times, calls and bytes alike: of each step the mean of the ranks, of these the
// median over the steps that count, which are all but the first, where there are more (step_figures.h says what belongs
// to a step). Start-up and validation are in no figure. Sums, such as those of an axis, are taken in each step.

/// Not known where one of the two is not.
inline std::optional<double> sum_of(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

/// Operations of one tag, primitive and algorithm in a step. Bytes as in comm::CommRow. Only our own backend counts
/// what it sends and knows whom it waits for.
struct CommEntry {
  std::string tag, primitive, algorithm, backend;
  int group_size = 1;
  double calls = 0, bytes = 0;
  std::optional<double> sent_bytes = 0, sent_inter_bytes = 0;  // counted in the links; inter: of them, to other nodes
  std::optional<double> formula_bytes = 0;  // to be sent, by the algorithm's formula (comm/observe/predict.h)
  double ms = 0, exposed_ms = 0;
  std::optional<double> late_ms = 0;                // of exposed_ms: waiting for ranks that came late
  std::vector<double> exposed_steps, late_steps{};  // ms of each step that counts; late: empty where not known

  /// Not what another rank sends, or a barrier.
  bool sends() const { return primitive != "recv" && primitive != "barrier"; }
};

/// What a rank calls and sends of one primitive in a step.
struct PrimitiveSum {
  std::string primitive;
  double calls = 0;
  std::optional<double> sent_bytes = 0, sent_inter_bytes = 0;
};

/// What is sent under a tag of the strategy in a step beside the strategy's formula (parallel/predict.h,
/// models/predict.h), padding included; a mean over the ranks.
struct TrafficEntry {
  std::string tag;
  double sent_bytes = 0, predicted_bytes = 0;
};

/// Peak bytes of a category; the largest of any rank, which is what a device must have.
struct MemoryEntry {
  std::string category;
  double peak_bytes = 0;
  std::optional<double> predicted_bytes;  // where there is a formula; also the largest
  double worst = 0;                       // largest |peak / predicted - 1| of any rank
};

inline constexpr const char* kSharedAxis = "dp x sp";

struct StrategyRecord {
  std::string name;
  parallel::MeshShape mesh;
  int num_ranks = 1;
  int micro_batches = 1;
  bool overlap = true;
  bool reduces_each_micro_batch = false;  // gradients of ddp and zero1, too (--deterministic)
  std::vector<double> losses;             // of each step, nats per token
  std::vector<double> step_ms;            // of each step, the mean of the ranks
  size_t num_counted = 0;                 // steps that figures are taken from
  // exposed: the rank stood still for communication; late: of that, it waited for ranks that came late.
  double median_ms = 0, tokens_per_s = 0, exposed_ms = 0;
  std::optional<double> late_ms = 0;
  double comm_ms = 0;  // in which anything was under way
  double flops = 0;    // of a rank in a step
  int64_t num_parameters = 0;
  std::vector<CommEntry> comm;
  std::vector<TrafficEntry> traffic;
  std::vector<MemoryEntry> memory;
  double peak_bytes = 0;                // of all categories together at any one time; the largest of any rank
  int timeline_step = 0;                // the step of the timelines: one of about the median's length
  std::vector<RankTimeline> timelines;  // by rank, seconds since the step began on the first to begin it

  /// Share of the step in which communication stood in the way.
  double exposed_share() const { return median_ms > 0 ? exposed_ms / median_ms : 0; }
  /// Share of the time of communication in which the rank computed.
  double overlap_share() const { return comm_ms > 0 ? std::max(0.0, 1 - exposed_ms / comm_ms) : 1; }
  /// Of the six primitives and send, those that are called; in the order of comm::Primitive.
  std::vector<PrimitiveSum> by_primitive() const;
  PrimitiveSum all_primitives() const;
  /// Whether it is known what was sent, and for whom the ranks waited: not where MPI carried it (--comm mpi).
  bool counts_links() const;
  /// Of each step that counts: ms in which the rank stood still for operations of these axes, and of these without the
  /// waits for late ranks, as far as those are known.
  std::vector<double> exposed_steps(const std::vector<std::string>& axes) const;
  std::vector<double> transfer_steps(const std::vector<std::string>& axes) const;
};

/// The axis whose group a tag belongs to: "tp", "sp", "pp", "dp"; "hsdp" for the replicas of shards; what adds up
/// gradients in groups of dp and sp ranks "dp x sp", or "sp" where there is no dp.
std::string axis_of_tag(const std::string& tag, const parallel::MeshShape& mesh);

}  // namespace sixfold::compare_strategies
