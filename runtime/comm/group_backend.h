// GroupBackend: what a Communicator stands on. One implementation per way of moving bytes: our own schedules over host
// links (host/own_group.h), MPI's collectives (mpi/mpi_group.h).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/host/work.h"

namespace sixfold::comm {

/// One collective, its arguments already checked by Communicator. `count` as in Call.
struct Collective {
  Primitive primitive = Primitive::AllReduce;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::Sum;
  int root = 0;
  bool in_place = false;
  Algorithm algorithm = Algorithm::Auto;
  std::string tag;
};

class GroupBackend {
 public:
  virtual ~GroupBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int world_rank(int r) const = 0;
  virtual std::shared_ptr<WorkState> start(const Collective& collective) = 0;
  virtual std::shared_ptr<WorkState> transfer(std::span<const P2p> transfers) = 0;
  virtual std::unique_ptr<GroupBackend> split(int color, int key) = 0;
};

}  // namespace sixfold::comm
