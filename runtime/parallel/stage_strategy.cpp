#include "runtime/parallel/stage_strategy.h"

#include <algorithm>

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

StageStrategy::StageStrategy(const StageUnits& units, const kernels::Place& place, comm::Communicator& pp_group,
                             comm::Communicator& dp_group, const StrategyOptions& options)
    : units_(units), context_(kernels::context_of(place)), pp_group_(pp_group) {
  SIXFOLD_CHECK_EQ(pp_group.size(), units.num_stages(), "stages of the pipeline");
  int64_t state_offset = 0;
  for (const StageUnits::Part& part : units.parts()) {
    auto strategy = make_strategy(part.units, place, dp_group, options);
    const int64_t count = strategy->state_elements();
    parts_.push_back({std::move(strategy), part.tied, state_offset});
    state_offset += count;
  }
  if (units.tied_stages() != std::pair{0, 0}) {
    tied_group_ = pp_group.split(units.tied().empty() ? -1 : 0, units.stage());
  }
}

StageStrategy::Part& StageStrategy::part_of(const Unit& unit) {
  for (size_t i = 0; i < units_.chunks().size(); ++i) {
    const UnitList& chunk = units_.chunks()[i];
    if (std::find(chunk.begin(), chunk.end(), &unit) != chunk.end()) return parts_[i];
  }
  throw CheckError("unit " + unit.name() + " is not of this stage");
}

void StageStrategy::load_values(const std::function<void(Parameter&)>& fill) {
  for (Part& part : parts_) part.strategy->load_values(fill);
}

// ---- A step --------------------------------------------------------------------------------------------------------

void StageStrategy::begin_step(int num_micro_batches) {
  for (Part& part : parts_) part.strategy->begin_step(part.tied ? 1 : num_micro_batches);
}

void StageStrategy::before_forward(Unit& unit, int micro_batch) {
  part_of(unit).strategy->before_forward(units_.placed(unit), micro_batch);
  if (Unit* tied = units_.placed_tied(unit)) parts_.back().strategy->before_forward(*tied, 0);
}

void StageStrategy::after_forward(Unit& unit, int micro_batch) {
  part_of(unit).strategy->after_forward(units_.placed(unit), micro_batch);
  if (Unit* tied = units_.placed_tied(unit)) parts_.back().strategy->after_forward(*tied, 0);
}

void StageStrategy::before_backward(Unit& unit, int micro_batch) {
  part_of(unit).strategy->before_backward(units_.placed(unit), micro_batch);
  if (Unit* tied = units_.placed_tied(unit)) parts_.back().strategy->before_backward(*tied, 0);
}

void StageStrategy::gradient_ready(Parameter& parameter, int micro_batch) {
  if (units_.is_tied(parameter)) return;  // ready when the other stage's share has been added
  parts_[static_cast<size_t>(units_.part_of(parameter))].strategy->gradient_ready(parameter, micro_batch);
}

void StageStrategy::after_backward(Unit& unit, int micro_batch) {
  part_of(unit).strategy->after_backward(units_.placed(unit), micro_batch);
  if (Unit* tied = units_.placed_tied(unit)) parts_.back().strategy->after_backward(*tied, 0);
}

std::vector<comm::Work> StageStrategy::start_tied_sums() {
  std::vector<comm::Work> sums;
  for (const Parameter* parameter : units_.tied()) {
    if (parameter->frozen) continue;
    sums.push_back(
        tied_group_->all_reduce(parameter->grad, parameter->grad, ReduceOp::Sum, call_options(context_, "pp.tied")));
  }
  return sums;
}

const std::vector<UpdateSegment>& StageStrategy::finish_gradients() {
  std::vector<comm::Work> tied_sums = start_tied_sums();
  segments_.clear();
  for (Part& part : parts_) {  // the tied weights last
    if (part.tied) {
      for (comm::Work& work : tied_sums) work.wait();
      for (Parameter* parameter : units_.tied()) {
        if (!parameter->frozen) part.strategy->gradient_ready(*parameter, 0);
      }
    }
    for (UpdateSegment segment : part.strategy->finish_gradients()) {
      segment.state_offset += part.state_offset;
      segment.in_norm = !part.tied || units_.stage() == units_.tied_stages().first;
      segments_.push_back(segment);
    }
  }
  return segments_;
}

void StageStrategy::after_step() {
  for (Part& part : parts_) part.strategy->after_step();
}

void StageStrategy::settle() {
  for (Part& part : parts_) part.strategy->settle();
}

// ---- Whole parameters ----------------------------------------------------------------------------------------------

int64_t StageStrategy::state_elements() const {
  return parts_.back().state_offset + parts_.back().strategy->state_elements();
}

void StageStrategy::gather(const Parameter& parameter, const Tensor& out,
                           const std::function<void(Part&)>& gather_part) {
  const int owner = units_.stage_of(parameter);
  if (owner == units_.stage()) gather_part(parts_[static_cast<size_t>(units_.part_of(parameter))]);
  if (pp_group_.size() > 1) pp_group_.broadcast(out, owner, call_options(context_, "pp.whole")).wait();
}

void StageStrategy::gather_value(const Parameter& parameter, const Tensor& out) {
  gather(parameter, out, [&](Part& part) { part.strategy->gather_value(parameter, out); });
}

void StageStrategy::gather_gradient(const Parameter& parameter, const Tensor& out) {
  gather(parameter, out, [&](Part& part) { part.strategy->gather_gradient(parameter, out); });
}

void StageStrategy::gather_moment(const Parameter& parameter, const Tensor& moment, const Tensor& out) {
  gather(parameter, out, [&](Part& part) {
    const Tensor of_part = moment.slice(part.state_offset, {part.strategy->state_elements()});
    part.strategy->gather_moment(parameter, of_part, out);
  });
}

}  // namespace sixfold::parallel
