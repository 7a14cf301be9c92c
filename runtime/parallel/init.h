// Initial values of parameters. Every element is a pure function of (seed, parameter name, index in the full tensor),
// so each rank fills its own piece and the pieces of any sharding are those of the same full tensor.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

/// Standard normal values of one parameter, by index in the full tensor. Philox draws four at a time (two Box-Muller
/// pairs a block); the last block is remembered, so that walking along a row costs a quarter of a draw an element.
class NormalSequence {
 public:
  NormalSequence(uint64_t seed, std::string_view parameter_name);
  double at(int64_t index);

 private:
  uint64_t key_;
  int64_t block_ = -1;  // which one values_ holds
  double values_[4] = {};
};

/// Fills parameter.value (defined, of the local shape, in `place`) as parameter.init says. Local: no rank
/// needs another.
void initialize(const kernels::Place& place, Parameter& parameter, uint64_t seed);

}  // namespace sixfold::parallel
