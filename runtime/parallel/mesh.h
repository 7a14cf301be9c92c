// Mesh: the ranks of the world laid out along four named axes.
//
//   world rank = ((pp * DP + dp) * SP + sp) * TP + tp
//
// tp is innermost: its ranks talk most often, so they are neighbours and share a node. sp comes next; dp and pp, which
// talk once a step or once a micro-batch, are outside.
// Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, section 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/schedule/profile.h"

namespace sixfold::parallel {

/// Ranks along each axis. As options of a program, dp == 0 means "what the other axes leave".
struct MeshShape {
  int pp = 1;  // pipeline stages
  int dp = 0;  // data-parallel replicas
  int sp = 1;  // parts of the sequence
  int tp = 1;  // tensor-parallel parts of each layer
};

/// The shape with dp filled in, when its product is the world. Pure: called before any rank exists.
/// Throws ConfigError: one message with the flags, the product and the allowed values.
MeshShape resolve_mesh(const MeshShape& requested, int world_size);

/// What the axes cut of a model and its batch, as the options of a program name it.
struct MeshLoad {
  int64_t num_layers = 1, num_heads = 1, vocab_size = 1, seq_len = 1, global_batch = 1;
  bool sequence_parallel = false;  // tp cuts the sequence as well, outside attention and MLP
};

/// Throws ConfigError unless the load can be cut along every axis: layers by pp, the batch by dp, heads by sp x tp, the
/// sequence by sp (x tp), at least one vocabulary row by tp. One message that names all that does not fit, with the
/// allowed values. Pure, as the next.
void check_mesh(const MeshShape& shape, const MeshLoad& load);

/// Where tensor-parallel groups span nodes of `world`: how many do, and what an AllReduce of one micro-batch's
/// activations, of `activation_bytes`, takes there and within a node of `profile` (each block has 4). Else "".
std::string tp_crossing_warning(const MeshShape& shape, const comm::Topology& world, size_t activation_bytes,
                                const comm::Profile& profile);

/// Where one rank stands on each axis.
struct MeshCoordinates {
  int pp = 0, dp = 0, sp = 0, tp = 0;
  bool operator==(const MeshCoordinates&) const = default;
};
MeshCoordinates mesh_coordinates(const MeshShape& shape, int world_rank);
int mesh_rank(const MeshShape& shape, const MeshCoordinates& coordinates);
/// World ranks of the data group (below) at these coordinates of pp and tp.
std::vector<int> data_group_ranks(const MeshShape& shape, const MeshCoordinates& coordinates);

/// The groups of one rank: along each axis, the ranks that differ from it on that axis only, in the order of that axis.
class Mesh {
 public:
  /// Collective over `world`, whose size is the product of `shape` (CheckError). The Mesh dies before its World.
  Mesh(comm::Communicator& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  const MeshCoordinates& coordinates() const { return coordinates_; }
  comm::Communicator& pp_group() { return pp_group_; }
  comm::Communicator& dp_group() { return dp_group_; }
  /// The ranks that add up gradients: dp x sp, in the order of world ranks. What ranks of sp have are gradients of
  /// other positions, so that they count as data parallel.
  comm::Communicator& data_group() { return data_group_; }
  comm::Communicator& sp_group() { return sp_group_; }
  comm::Communicator& tp_group() { return tp_group_; }

 private:
  comm::Communicator group_along(comm::Communicator& world, int MeshCoordinates::*axis) const;

  MeshShape shape_;
  MeshCoordinates coordinates_;
  comm::Communicator pp_group_, dp_group_, sp_group_, tp_group_, data_group_;
};

}  // namespace sixfold::parallel
