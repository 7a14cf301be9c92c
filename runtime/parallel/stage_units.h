// StageUnits: which units of a model one pipeline stage runs, and what the strategies of the stage see of them.
//
//   model        embedding  h.0  h.1  h.2  h.3  h.4  head          p = 2 stages, V = 1
//   stage 0      embedding  h.0  h.1  h.2                          the first unit goes with the first layers,
//   stage 1                               h.3  h.4  head           the last unit with the last ones
//
// A weight that two stages use (the token table, tied to the head) exists on both. Each adds to a gradient of its own,
// and the sum of the two is what is sharded, measured and updated (stage_strategy.h). So it is a part by itself, with a
// bucket of its own: the same layout, shards and order of additions on both stages, hence the same bits for good.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

/// The chunks of a model for p stages of V chunks, in the model's order: all units, each once. Layers, that is all
/// units but the first and the last, are split by split_layers(). Throws ConfigError for fewer layers than chunks.
std::vector<UnitList> split_units(const UnitList& model, int num_stages, int virtual_stages);

/// Those of them that stage `stage` runs, by chunk.
std::vector<UnitList> stage_chunks(const UnitList& model, int stage, int num_stages, int virtual_stages);

class StageUnits {
 public:
  /// `model` outlives this and is the same list of units on all stages; every stage describes all parameters, and only
  /// those of its own units are ever placed. Throws as split_units; CheckError for a weight that more than two stages
  /// use.
  StageUnits(const UnitList& model, int stage, int num_stages, int virtual_stages);

  int stage() const { return stage_; }
  int num_stages() const { return num_stages_; }
  /// The units of this stage by chunk.
  const std::vector<UnitList>& chunks() const { return chunks_; }

  /// What a strategy places: the units of a chunk without the weights that another stage uses, too; or, last, these
  /// weights. They stand for the units of chunks() and are owned by this.
  struct Part {
    UnitList units;
    bool tied = false;
  };
  const std::vector<Part>& parts() const { return parts_; }

  /// Weights that another stage uses, too.
  const std::vector<Parameter*>& tied() const { return tied_; }
  bool is_tied(const Parameter& parameter) const;
  /// The first and the last stage that use a tied weight, the same on all stages; {0, 0} where there is none.
  std::pair<int, int> tied_stages() const { return tied_stages_; }

  /// What stands for `unit` in its chunk's part.
  Unit& placed(const Unit& unit) const { return *placed_.at(&unit); }
  /// What stands for the tied weights that it uses; nullptr: it uses none.
  Unit* placed_tied(const Unit& unit) const;
  /// Which of parts() has the parameter; -1: another stage's has.
  int part_of(const Parameter& parameter) const;
  /// The stage whose unit owns the parameter (and does not just borrow it): the same on every stage.
  int stage_of(const Parameter& parameter) const { return stage_of_.at(&parameter); }

 private:
  void find_tied(const std::vector<UnitList>& all_chunks);
  void place_units();

  int stage_, num_stages_;
  std::vector<UnitList> chunks_;
  std::vector<Parameter*> tied_;
  std::pair<int, int> tied_stages_{0, 0};
  std::unordered_map<const Parameter*, int> stage_of_, part_of_;
  std::vector<std::unique_ptr<Unit>> owned_;
  std::unordered_map<const Unit*, Unit*> placed_, placed_tied_;
  std::vector<Part> parts_;
};

}  // namespace sixfold::parallel
