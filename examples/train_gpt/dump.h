// Dump: gradients of step 1 ("grad.NAME") and final weights ("weight.NAME"), whole and without padding, in one
// safetensors file, so that runs can be compared tensor by tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/parallel/strategy.h"
#include "runtime/train/safetensors.h"

namespace sixfold::train_gpt {

class Dump {
 public:
  /// `parameters` in name order. Rank 0 (`writes`) creates the file. `tp_group`: the ranks that hold pieces of them
  /// (parallel::assemble). Throws ConfigError when it cannot.
  Dump(const std::string& path, std::vector<parallel::Parameter*> parameters, parallel::Strategy& strategy,
       comm::Communicator* tp_group, const kernels::Place& place, bool writes);
  /// Between the gradients and the optimizer of step 1. Collective, as the next.
  void gradients();
  /// After the last step; completes the file.
  void weights();

 private:
  void write(const std::string& kind, void (parallel::Strategy::*gather)(const parallel::Parameter&, const Tensor&));

  std::vector<parallel::Parameter*> parameters_;
  parallel::Strategy& strategy_;
  comm::Communicator* tp_group_;
  kernels::Place place_;
  std::optional<train::SafetensorsWriter> writer_;  // rank 0 only
};

}  // namespace sixfold::train_gpt
