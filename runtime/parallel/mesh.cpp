#include "runtime/parallel/mesh.h"

#include <cstdio>

namespace sixfold::parallel {

namespace {

// In double: options can be any integers, and a product that does not fit must not wrap into the right one.
std::string product_text(double product) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.0f", product);
  return text;
}

MeshShape covering(const comm::Communicator& world, const MeshShape& shape) {
  SIXFOLD_CHECK_EQ(shape.pp * shape.dp * shape.sp * shape.tp, world.size(), "a mesh covers its world");
  return shape;
}

}  // namespace

MeshShape resolve_mesh(const MeshShape& requested, int world_size) {
  MeshShape shape = requested;
  const std::string ranks = std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks");
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("--pp " + std::to_string(requested.pp) + " --dp " + std::to_string(requested.dp) + " --sp " +
                      std::to_string(requested.sp) + " --tp " + std::to_string(requested.tp) + " on " + ranks + ": " +
                      why + ". Allowed: --sp 1, --tp 1 (more is not available yet), --pp and --dp whose product is " +
                      std::to_string(world_size) + "; --dp 0 for what the other axes leave");
  };

  if (shape.pp < 1 || shape.sp < 1 || shape.tp < 1) refuse("--pp, --sp and --tp count ranks and are at least 1");
  if (shape.dp < 0) refuse("--dp counts ranks and is at least 1 (0: what is left)");
  const double others = 1.0 * shape.pp * shape.sp * shape.tp;
  if (shape.dp == 0) {
    if (others > world_size || world_size % static_cast<int>(others) != 0) {
      refuse("pp x sp x tp = " + product_text(others) + " does not divide " + std::to_string(world_size));
    }
    shape.dp = world_size / static_cast<int>(others);
  }
  if (others * shape.dp != world_size) {
    refuse("pp x dp x sp x tp = " + product_text(others * shape.dp) + ", but must be " + std::to_string(world_size));
  }
  if (1.0 * shape.sp * shape.tp > 1) refuse("sequence and tensor parallelism are not available yet");
  return shape;
}

MeshCoordinates mesh_coordinates(const MeshShape& shape, int world_rank) {
  MeshCoordinates at;
  at.tp = world_rank % shape.tp;
  at.sp = world_rank / shape.tp % shape.sp;
  at.dp = world_rank / (shape.tp * shape.sp) % shape.dp;
  at.pp = world_rank / (shape.tp * shape.sp * shape.dp);
  return at;
}

int mesh_rank(const MeshShape& shape, const MeshCoordinates& at) {
  return ((at.pp * shape.dp + at.dp) * shape.sp + at.sp) * shape.tp + at.tp;
}

Mesh::Mesh(comm::Communicator& world, const MeshShape& shape)
    : shape_(covering(world, shape)),
      coordinates_(mesh_coordinates(shape_, world.rank())),
      pp_group_(group_along(world, &MeshCoordinates::pp)),
      dp_group_(group_along(world, &MeshCoordinates::dp)),
      sp_group_(group_along(world, &MeshCoordinates::sp)),
      tp_group_(group_along(world, &MeshCoordinates::tp)) {}

comm::Communicator Mesh::group_along(comm::Communicator& world, int MeshCoordinates::*axis) const {
  MeshCoordinates first = coordinates_;
  first.*axis = 0;
  // The world rank of a group's first member is a colour that no other group along this axis has.
  return world.split(mesh_rank(shape_, first), coordinates_.*axis);
}

}  // namespace sixfold::parallel
