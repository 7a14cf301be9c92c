// HostSum: whole numbers that the CPU has, added up over the ranks of a group whose collectives may run on a GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/kernels.h"
#include "runtime/comm/communicator.h"

namespace sixfold::train {

class HostSum {
 public:
  /// Starts an AllReduce of `values`, which stay where they are until wait(). They go through the memory of `place`,
  /// which the group's collectives work on, where that is a GPU's; else they travel as they are. Collective.
  void start(const kernels::Place& place, comm::Communicator& group, std::span<int64_t> values, const std::string& tag);
  /// The values are sums now. Does nothing where nothing was started.
  void wait();

 private:
  kernels::Queue* queue_ = nullptr;
  std::span<int64_t> values_;
  Tensor on_gpu_;
  comm::Work work_;
};

}  // namespace sixfold::train
