// StageStrategy: the strategy of one pipeline stage, made of one strategy a part (stage_units.h).
//
//   each chunk        a strategy of its own, since the backwards of a chunk run in the order of micro-batches and those
//                     of several chunks do not
//   tied weights      a strategy for which the whole step is one micro-batch: their gradient is added up over all
//                     micro-batches, then over the two stages (AllReduce, "pp.tied"), and only then sharded, measured
//                     and updated. All others take part once: the norm leaves out the copy of the later stage.
//
// Bytes sent per rank and step besides those of the parts: G of the tied weights on their two stages.
// Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, section 2.2;
// Megatron-LM, which sums the embedding's gradient over first and last stage in the same way.
#pragma once

#include <optional>

#include "runtime/parallel/stage_units.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

class StageStrategy final : public Strategy {
 public:
  /// `dp_group` are the data-parallel ranks of this stage, `pp_group` the stages, in order. All arguments but `options`
  /// outlive this. Collective over both, with the same options on all ranks. Throws ConfigError as make_strategy.
  StageStrategy(const StageUnits& units, const kernels::Place& place, comm::Communicator& pp_group,
                comm::Communicator& dp_group, const StrategyOptions& options);

  /// `fill` is called on the first rank of each stage's dp_group, for the stage's parameters; what it writes to a tied
  /// weight is the same on both stages.
  void load_values(const std::function<void(Parameter&)>& fill) override;

  void begin_step(int num_micro_batches) override;
  void before_forward(Unit& unit, int micro_batch) override;
  void after_forward(Unit& unit, int micro_batch) override;
  void before_backward(Unit& unit, int micro_batch) override;
  void gradient_ready(Parameter& parameter, int micro_batch) override;
  void after_backward(Unit& unit, int micro_batch) override;
  const std::vector<UpdateSegment>& finish_gradients() override;
  void after_step() override;
  void settle() override;

  comm::Communicator* shard_group() override { return parts_.front().strategy->shard_group(); }
  int64_t state_elements() const override;
  /// These take every parameter of the model, those of other stages as well, and are collective over the whole mesh:
  /// the stage that has it puts it together and broadcasts it ("pp.whole").
  void gather_value(const Parameter& parameter, const Tensor& out) override;
  void gather_gradient(const Parameter& parameter, const Tensor& out) override;
  void gather_moment(const Parameter& parameter, const Tensor& moment, const Tensor& out) override;

 private:
  struct Part {
    std::unique_ptr<Strategy> strategy;
    bool tied;
    int64_t state_offset;
  };
  Part& part_of(const Unit& unit);
  void gather(const Parameter& parameter, const Tensor& out, const std::function<void(Part&)>& gather_part);
  std::vector<comm::Work> start_tied_sums();

  const StageUnits& units_;
  kernels::Context context_;
  comm::Communicator& pp_group_;
  std::optional<comm::Communicator> tied_group_;  // the two stages that have the tied weights
  std::vector<Part> parts_;
  std::vector<UpdateSegment> segments_;
};

}  // namespace sixfold::parallel
