// GroupBackend: what a Communicator stands on. One implementation per way of moving bytes: our own schedules over host
// links (host/own_group.h), MPI's collectives (mpi/mpi_group.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

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
  std::shared_ptr<const std::vector<size_t>> counts;  // as Call::counts; nullptr: all blocks have `count` elements
  /// Called when the operation starts, after those issued before it; returns what is wrong, or nothing.
  std::function<std::string()> check;
  std::shared_ptr<const void> keeps;  // held until the operation is done: buffers that nobody else owns
  Algorithm algorithm = Algorithm::Auto;
  void* stream = nullptr;    // as Options::stream
  bool host_memory = false;  // in and out are on the host, whatever the World's device
  std::string_view tag;      // valid during the call that starts the operation

  /// What builders and formulas want to know of it, but for pass fields.
  Call call(int rank, const Topology& topology) const {
    Call c;
    c.primitive = primitive;
    c.rank = rank;
    c.size = topology.size();
    c.root = root;
    c.count = count;
    c.in_place = in_place;
    c.topology = &topology;
    c.counts = counts.get();
    return c;
  }
};

/// Of what a group's split number `split` makes: "world/0.1", or "world/0.alone2" where this rank (of the group) is on
/// its own. No two groups of a World have one name.
std::string split_name(const std::string& group, int split, int color, int rank);

class GroupBackend {
 public:
  virtual ~GroupBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int world_rank(int r) const = 0;
  virtual const Topology& topology() const = 0;
  /// What such a collective would run by; where the backend does not say, what suits a large one.
  virtual Algorithm algorithm_for(const Collective& collective) const;
  virtual std::shared_ptr<WorkState> start(const Collective& collective) = 0;
  virtual std::shared_ptr<WorkState> transfer(std::span<const P2p> transfers) = 0;
  virtual std::unique_ptr<GroupBackend> split(int color, int key) = 0;
};

}  // namespace sixfold::comm
