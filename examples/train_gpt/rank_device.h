// Where one rank computes: on the CPU, in memory of its World, or on a GPU, in memory and a queue of its own.
#pragma once

#include <memory>

#include "examples/train_gpt/plan.h"
#include "kernels/queue.h"
#include "runtime/comm/world.h"

namespace sixfold::train_gpt {

class RankDevice {
 public:
  /// On a GPU, takes this rank's share of the memory that is free there. Outlives all that is computed. Collective over
  /// `group`, some of the world's ranks. Throws ConfigError and CommError.
  RankDevice(comm::World& world, comm::Communicator& group, const Plan& plan);

  Memory& memory() { return memory_ ? *memory_ : world_.memory(); }
  kernels::Place place() { return {memory(), queue_.get()}; }
  kernels::Context context(const Plan& plan) { return {memory(), plan.num_threads, nullptr, queue_.get(), plan.dtype}; }
  /// For what is no part of training: the same device, in a Memory that counts it apart.
  std::unique_ptr<Memory> scratch() const { return std::make_unique<Memory>(allocator_); }
  kernels::Queue* queue() const { return queue_.get(); }

 private:
  comm::World& world_;
  std::shared_ptr<Allocator> allocator_;
  std::unique_ptr<Memory> memory_;  // nullptr: the World's
  std::unique_ptr<kernels::Queue> queue_;
};

}  // namespace sixfold::train_gpt
