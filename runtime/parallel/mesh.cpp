#include "runtime/parallel/mesh.h"

#include <cstdio>
#include <set>

#include "runtime/comm/schedule/closed_form.h"
#include "runtime/core/divisors.h"

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
                      why + ". Allowed: --pp, --dp, --sp and --tp whose product is " + std::to_string(world_size) +
                      "; --dp 0 for what the other axes leave");
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
  return shape;
}

void check_mesh(const MeshShape& shape, const MeshLoad& load) {
  std::string complaints;
  const auto complain = [&](const std::string& text) { complaints += (complaints.empty() ? "" : "; ") + text; };
  const auto divides = [&](const char* flag, int64_t value, const std::string& axes, int64_t parts) {
    if (value % parts == 0) return;
    complain(std::string(flag) + " " + std::to_string(value) + " is not cut by " + axes + " = " +
             std::to_string(parts) + " (allowed: " + divisors_of(value) + ")");
  };
  if (shape.pp > load.num_layers) {
    complain("--layers " + std::to_string(load.num_layers) + " with --pp " + std::to_string(shape.pp) +
             ": every stage needs a layer (allowed: --layers " + std::to_string(shape.pp) + " or more, --pp 1 to " +
             std::to_string(load.num_layers) + ")");
  }
  if (load.global_batch % shape.dp != 0) {
    const int64_t below = load.global_batch / shape.dp * shape.dp;
    complain("--global-batch " + std::to_string(load.global_batch) +
             " does not divide over dp = " + std::to_string(shape.dp) + " (allowed: multiples of it, such as " +
             (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + shape.dp) + ")");
  }
  divides("--heads", load.num_heads, "sp x tp", int64_t{shape.sp} * shape.tp);
  if (load.sequence_parallel) {
    divides("--seq-len", load.seq_len, "sp x tp", int64_t{shape.sp} * shape.tp);
    if (shape.tp == 1) complain("--sequence-parallel megatron needs a --tp group (allowed: --tp 2 and more, or none)");
  } else {
    divides("--seq-len", load.seq_len, "sp", shape.sp);
  }
  if (shape.tp > load.vocab_size) {
    complain("--tp " + std::to_string(shape.tp) + " is more than the vocabulary of " + std::to_string(load.vocab_size));
  }
  if (complaints.empty()) return;
  throw ConfigError("--pp " + std::to_string(shape.pp) + " --dp " + std::to_string(shape.dp) + " --sp " +
                    std::to_string(shape.sp) + " --tp " + std::to_string(shape.tp) + ": " + complaints);
}

std::string tp_crossing_warning(const MeshShape& shape, const comm::Topology& world, size_t activation_bytes,
                                const comm::Profile& profile) {
  int num_crossing = 0;
  size_t most_nodes = 1;
  for (int first = 0; first < world.size(); first += shape.tp) {
    std::set<int> nodes;
    for (int rank = first; rank < first + shape.tp; ++rank) nodes.insert(world.node_of(rank));
    num_crossing += nodes.size() > 1 ? 1 : 0;
    most_nodes = std::max(most_nodes, nodes.size());
  }
  if (num_crossing == 0) return "";
  const auto milliseconds = [&](int num_nodes) {
    comm::CostQuery query;
    query.num_nodes = num_nodes;
    query.ranks_per_node = (shape.tp + num_nodes - 1) / num_nodes;
    query.count = activation_bytes / sizeof(float);
    char text[32];
    std::snprintf(text, sizeof(text), "%.3g ms", 1e3 * comm::predict_seconds(query, profile).seconds);
    return std::string(text);
  };
  return "--tp " + std::to_string(shape.tp) + ": " + std::to_string(num_crossing) + " of " +
         std::to_string(world.size() / shape.tp) +
         " tensor-parallel groups span nodes: there an all-reduce of a micro-batch's activations, 4 a block, takes "
         "some " +
         milliseconds(static_cast<int>(most_nodes)) + " on " + profile.name + " links, within a node " +
         milliseconds(1) + "; a --tp that divides the ranks of a node avoids it";
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

std::vector<int> data_group_ranks(const MeshShape& shape, const MeshCoordinates& coordinates) {
  std::vector<int> ranks;
  for (int dp = 0; dp < shape.dp; ++dp) {
    for (int sp = 0; sp < shape.sp; ++sp) ranks.push_back(mesh_rank(shape, {coordinates.pp, dp, sp, coordinates.tp}));
  }
  return ranks;
}

Mesh::Mesh(comm::Communicator& world, const MeshShape& shape)
    : shape_(covering(world, shape)),
      coordinates_(mesh_coordinates(shape_, world.rank())),
      pp_group_(group_along(world, &MeshCoordinates::pp)),
      dp_group_(group_along(world, &MeshCoordinates::dp)),
      sp_group_(group_along(world, &MeshCoordinates::sp)),
      tp_group_(group_along(world, &MeshCoordinates::tp)),
      data_group_(world.split(data_group_ranks(shape_, coordinates_).front(), world.rank())) {}

comm::Communicator Mesh::group_along(comm::Communicator& world, int MeshCoordinates::*axis) const {
  MeshCoordinates first = coordinates_;
  first.*axis = 0;
  // The world rank of a group's first member is a colour that no other group along this axis has.
  return world.split(mesh_rank(shape_, first), coordinates_.*axis);
}

}  // namespace sixfold::parallel
