#include "runtime/parallel/stage_units.h"

#include <algorithm>
#include <set>

#include "runtime/parallel/pipeline_schedule.h"

namespace sixfold::parallel {

namespace {

/// A unit of which a strategy sees some of the parameters.
class UnitPart final : public Unit {
 public:
  UnitPart(Unit& unit, std::vector<Parameter*> parameters, std::vector<Parameter*> borrowed)
      : unit_(unit), parameters_(std::move(parameters)), borrowed_(std::move(borrowed)) {}

  const std::string& name() const override { return unit_.name(); }
  std::vector<Parameter*> parameters() override { return parameters_; }
  std::vector<Parameter*> borrowed_parameters() override { return borrowed_; }
  Tensor forward(kernels::Context& context, const Tensor& x, const MicroBatch& batch, Saved& saved) override {
    return unit_.forward(context, x, batch, saved);
  }
  Tensor backward_input(kernels::Context& context, const Tensor& dy, const MicroBatch& batch, Saved& saved) override {
    return unit_.backward_input(context, dy, batch, saved);
  }
  void backward_weights(kernels::Context& context, const MicroBatch& batch, Saved& saved,
                        const GradientReady& ready) override {
    unit_.backward_weights(context, batch, saved, ready);
  }

 private:
  Unit& unit_;
  std::vector<Parameter*> parameters_, borrowed_;
};

}  // namespace

std::vector<UnitList> split_units(const UnitList& model, int num_stages, int virtual_stages) {
  if (num_stages == 1 && virtual_stages == 1) return {model};
  const auto num_layers = static_cast<int64_t>(model.size()) - 2;
  const std::vector<int64_t> counts = split_layers(std::max<int64_t>(num_layers, 0), num_stages, virtual_stages);
  std::vector<UnitList> chunks;
  auto next = model.begin();
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool with_first = i == 0, with_last = i + 1 == counts.size();
    const auto end = next + counts[i] + (with_first ? 1 : 0) + (with_last ? 1 : 0);
    chunks.emplace_back(next, end);
    next = end;
  }
  return chunks;
}

std::vector<UnitList> stage_chunks(const UnitList& model, int stage, int num_stages, int virtual_stages) {
  const std::vector<UnitList> all = split_units(model, num_stages, virtual_stages);
  std::vector<UnitList> chunks;
  for (int chunk = 0; chunk < virtual_stages; ++chunk) {
    chunks.push_back(all[static_cast<size_t>(chunk * num_stages + stage)]);
  }
  return chunks;
}

StageUnits::StageUnits(const UnitList& model, int stage, int num_stages, int virtual_stages)
    : stage_(stage), num_stages_(num_stages), chunks_(stage_chunks(model, stage, num_stages, virtual_stages)) {
  const std::vector<UnitList> all_chunks = split_units(model, num_stages, virtual_stages);
  for (size_t part = 0; part < all_chunks.size(); ++part) {
    const int stage_of_part = static_cast<int>(part) % num_stages;
    for (Unit* unit : all_chunks[part]) {
      for (const Parameter* parameter : unit->parameters()) stage_of_[parameter] = stage_of_part;
    }
  }
  find_tied(all_chunks);
  place_units();
}

/// A borrowed parameter whose owner is on another stage.
void StageUnits::find_tied(const std::vector<UnitList>& all_chunks) {
  for (size_t part = 0; part < all_chunks.size(); ++part) {
    const int borrower = static_cast<int>(part) % num_stages_;
    for (Unit* unit : all_chunks[part]) {
      for (Parameter* parameter : unit->borrowed_parameters()) {
        const int owner = stage_of_.at(parameter);
        if (owner == borrower) continue;
        const std::pair<int, int> stages = std::minmax(owner, borrower);
        if (tied_stages_ == std::pair{0, 0}) tied_stages_ = stages;
        SIXFOLD_CHECK(tied_stages_ == stages, parameter->name + ": tied weights are on the same two stages");
        const bool here = stage_ == owner || stage_ == borrower;
        if (here && !is_tied(*parameter)) tied_.push_back(parameter);
      }
    }
  }
}

void StageUnits::place_units() {
  const auto place = [&](Unit& unit, std::vector<Parameter*> parameters, std::vector<Parameter*> borrowed) {
    return owned_.emplace_back(std::make_unique<UnitPart>(unit, std::move(parameters), std::move(borrowed))).get();
  };
  // All tied weights are one unit for their strategy. It borrows what it has, as a model's tied ends do: so it stays
  // whole from the first forward to the last backward of a step.
  Unit* tied_unit = nullptr;
  for (const UnitList& chunk : chunks_) {
    Part& part = parts_.emplace_back();
    for (Unit* unit : chunk) {
      std::vector<Parameter*> parameters = unit->parameters(), borrowed = unit->borrowed_parameters();
      size_t num_tied = 0;
      for (auto* list : {&parameters, &borrowed}) {
        num_tied += std::erase_if(*list, [&](const Parameter* parameter) { return is_tied(*parameter); });
      }
      for (const Parameter* parameter : parameters) part_of_[parameter] = static_cast<int>(parts_.size()) - 1;
      placed_[unit] = part.units.emplace_back(place(*unit, std::move(parameters), std::move(borrowed)));
      if (num_tied == 0) continue;
      if (tied_unit == nullptr) tied_unit = place(*unit, tied_, tied_);
      placed_tied_[unit] = tied_unit;
    }
  }
  if (tied_unit == nullptr) return;
  for (const Parameter* parameter : tied_) part_of_[parameter] = static_cast<int>(parts_.size());
  parts_.push_back({{tied_unit}, true});
}

bool StageUnits::is_tied(const Parameter& parameter) const {
  return std::find(tied_.begin(), tied_.end(), &parameter) != tied_.end();
}

Unit* StageUnits::placed_tied(const Unit& unit) const {
  const auto found = placed_tied_.find(&unit);
  return found == placed_tied_.end() ? nullptr : found->second;
}

int StageUnits::part_of(const Parameter& parameter) const {
  const auto found = part_of_.find(&parameter);
  return found == part_of_.end() ? -1 : found->second;
}

}  // namespace sixfold::parallel
