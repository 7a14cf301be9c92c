// Pipeline: runs one stage's list of actions. One stage alone is the simplest list.
//
// Transfers go on beside the computations. The next receive of each lane is posted as soon as the one before it has
// been taken, a send is started when its tensor is there (a gradient before the weights of the chunk's first unit) and
// waited for before the next one of its lane, or at the end: one message of a lane is under way, as check_schedule()
// has it, and its tensor stays until then, so memory does not depend on how quick the other stage is. Activations
// travel on lane 0 ("pp.activation", those of evaluations "pp.activation.eval"), gradients on lane 1 ("pp.gradient");
// each lane keeps its order.
//
// A tensor that travels is [R, ...] with R in proportion to the tokens of its micro-batch, which every stage knows. Its
// other dims are announced once, before the first activation of a chunk ("pp.shape", 72 bytes); gradients have the
// shape of the activations. So micro-batches may be of any lengths.
//
// Bytes sent per micro-batch: those of one activation over each boundary between chunks, and as many of its gradient.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/observe/comm_log.h"
#include "runtime/parallel/pipeline_schedule.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

/// What a pipeline works with; all of it outlives the pipeline.
struct PipelineParts {
  comm::Communicator* group;     // the stages, in order; nullptr: there is one
  std::vector<UnitList> chunks;  // of this stage
  Strategy& strategy;
  kernels::Context& context;
  std::function<void()> poll;    // lets outstanding communication go on
  comm::CommLog* log = nullptr;  // where forwards and backwards are recorded; nullptr: nowhere
};

struct PipelineRun {
  Tensor losses;               // f32, where kernels work: of each forward of the last unit; none on other stages
  double compute_seconds = 0;  // in forwards and backwards, with what strategies wait for in them
  double seconds = 0;
};

class Pipeline {
 public:
  explicit Pipeline(PipelineParts parts);

  int stage() const { return stage_; }
  int num_stages() const { return num_stages_; }
  int virtual_stages() const { return static_cast<int>(parts_.chunks.size()); }
  /// Whether the last unit of the model, and so the loss, is on this stage.
  bool has_loss() const { return stage_ == num_stages_ - 1; }

  /// What the loss of a token counts, f32 [1] where kernels work: asked for when a backward of the last unit begins.
  using LossScale = std::function<Tensor()>;
  /// Runs `actions`, this stage's list of a schedule of all stages, over the micro-batches that they name; batches[m]
  /// is the same on all stages. Between begin_step() and finish_gradients() of the strategy where there are backwards.
  /// When it returns, all that was sent has left. Collective over the stages.
  PipelineRun run(std::span<const Action> actions, std::span<const MicroBatch> batches, const LossScale& loss_scale);

  /// One forward with `last` in place of the model's last unit: its result, of `shape`, on every stage
  /// ("pp.result"). batch.training is false. Collective over the stages.
  Tensor infer(const MicroBatch& batch, const std::function<Tensor(const Tensor& x)>& last, const Shape& shape);

 private:
  using Key = std::pair<int, int>;  // chunk, micro-batch
  using Tensors = std::map<Key, Tensor>;
  struct Job {
    std::span<const Action> actions;
    std::span<const MicroBatch> batches;
    LossScale loss_scale;
    std::function<Tensor(const Tensor& x)> last;     // in place of the model's last unit, where it is not empty
    std::function<void(const Tensor& y)> on_result;  // of each forward of the last unit
  };
  /// The receives of one peer and kind, in order.
  struct Lane {
    std::vector<const Action*> actions;
    size_t next = 0;      // the first that has not been taken
    bool posted = false;  // that one: into `tensor`
    Tensor tensor;
    comm::Work work;
  };
  /// The shape of an activation for a micro-batch of `tokens` tokens.
  struct Announced {
    Shape shape;
    int64_t tokens = 0;
  };
  struct Sent {
    Tensor tensor;
    comm::Work work;
  };

  bool is_first_part(int chunk) const { return stage_ == 0 && chunk == 0; }
  bool is_last_part(int chunk) const { return has_loss() && chunk == virtual_stages() - 1; }
  const MicroBatch& batch_of(const Action& action) const;
  int64_t num_tokens(const Action& action) const;

  PipelineRun execute(Job job);
  void forward(const Action& action);
  bool backward(const Action& action, const Action* next);

  comm::SpanScope span(const Action& action, std::optional<size_t> unit = std::nullopt);

  void start_lanes();
  std::pair<int, bool> shape_key(const Action& action) const { return {action.chunk, batch_of(action).all_positions}; }
  bool knows_shape(const Action& action) const;
  void post(Lane& lane);
  Tensor receive(const Action& action);
  void receive_shape(const Action& action);
  void send(const Action& action, const Tensor& tensor);
  void send_shape(const Action& action, const Tensor& tensor);

  PipelineParts parts_;
  int stage_, num_stages_;
  std::vector<std::vector<int32_t>> log_units_;  // by chunk and unit; empty without a log
  // By chunk, and whether ranks have all positions of their rows (MicroBatch::all_positions); they stay from run to
  // run.
  std::map<std::pair<int, bool>, Announced> inputs_, outputs_;

  // Of the run under way.
  Job job_;
  std::map<std::pair<int, Action::Kind>, Lane> lanes_;  // by peer
  Tensors activations_, gradients_;                     // received, or computed and to be sent
  std::map<Key, std::vector<Saved>> saved_;             // by unit
  std::map<std::pair<int, Action::Kind>, Sent> sent_;   // the last of each lane, by peer
  std::vector<Sent> sent_shapes_;
};

}  // namespace sixfold::parallel
