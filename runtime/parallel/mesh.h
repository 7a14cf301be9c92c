// Mesh: the ranks of the world laid out along four named axes.
//
//   world rank = ((pp * DP + dp) * SP + sp) * TP + tp
//
// tp is innermost: its ranks talk most often, so they are neighbours and share a node. sp comes next; dp and pp, which
// talk once a step or once a micro-batch, are outside.
// Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, section 3.
#pragma once

#include "runtime/comm/communicator.h"

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

/// Where one rank stands on each axis.
struct MeshCoordinates {
  int pp = 0, dp = 0, sp = 0, tp = 0;
  bool operator==(const MeshCoordinates&) const = default;
};
MeshCoordinates mesh_coordinates(const MeshShape& shape, int world_rank);
int mesh_rank(const MeshShape& shape, const MeshCoordinates& coordinates);

/// The groups of one rank: along each axis, the ranks that differ from it on that axis only, in the order of that axis.
class Mesh {
 public:
  /// Collective over `world`, whose size is the product of `shape` (CheckError). The Mesh dies before its World.
  Mesh(comm::Communicator& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  const MeshCoordinates& coordinates() const { return coordinates_; }
  comm::Communicator& pp_group() { return pp_group_; }
  comm::Communicator& dp_group() { return dp_group_; }
  comm::Communicator& sp_group() { return sp_group_; }
  comm::Communicator& tp_group() { return tp_group_; }

 private:
  comm::Communicator group_along(comm::Communicator& world, int MeshCoordinates::*axis) const;

  MeshShape shape_;
  MeshCoordinates coordinates_;
  comm::Communicator pp_group_, dp_group_, sp_group_, tp_group_;
};

}  // namespace sixfold::parallel
