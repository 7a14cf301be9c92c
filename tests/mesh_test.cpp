#include "runtime/parallel/mesh.h"

#include "tests/harness.h"

namespace sixfold::parallel {
namespace {

std::string refusal(const MeshShape& requested, int world_size) {
  try {
    resolve_mesh(requested, world_size);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

TEST(Mesh, DataParallelTakesWhatIsLeft) {
  for (int world : {1, 2, 3, 4, 7, 8, 64}) {
    for (int dp : {0, world}) {
      const MeshShape shape = resolve_mesh({1, dp, 1, 1}, world);
      EXPECT_EQ(shape.dp, world);
      EXPECT_EQ(shape.pp * shape.sp * shape.tp, 1);
    }
  }
}

TEST(Mesh, StagesAndDataParallelRanksShareTheWorld) {
  EXPECT_EQ(resolve_mesh({2, 0, 1, 1}, 8).dp, 4);
  EXPECT_EQ(resolve_mesh({4, 2, 1, 1}, 8).pp, 4);
  expect_contains(refusal({3, 0, 1, 1}, 8), {"--pp 3", "= 3 does not divide 8"});
}

TEST(Mesh, RefusalNamesProductFlagsAndAllowedValues) {
  expect_contains(refusal({3, 0, 1, 2}, 8), {"--pp 3", "--dp 0", "--sp 1", "--tp 2", "8 ranks", "= 6",
                                             "does not divide", "Allowed: --sp 1, --tp 1", "product is 8"});
  expect_contains(refusal({1, 3, 1, 1}, 4), {"--dp 3", "4 ranks", "= 3, but must be 4", "product is 4", "--dp 0"});
  expect_contains(refusal({1, 16, 1, 1}, 8), {"--dp 16", "= 16, but must be 8"});
  expect_contains(refusal({1, 2, 1, 1}, 1), {"on 1 rank:", "= 2, but must be 1"});
  expect_contains(refusal({0, 2, 1, 1}, 2), {"--pp 0", "at least 1", "Allowed"});
  expect_contains(refusal({1, 2, 1, -2}, 2), {"--tp -2", "at least 1"});
  expect_contains(refusal({1, -2, 1, 1}, 2), {"--dp -2", "at least 1"});
}

TEST(Mesh, AxesThatFitButDoNotExistYetAreRefused) {
  for (const MeshShape& shape : {MeshShape{1, 2, 2, 1}, MeshShape{1, 0, 1, 4}}) {
    expect_contains(refusal(shape, 4), {"not available yet", "product is 4"});
  }
}

TEST(Mesh, ProductsBeyondIntAreNotTheWorld) {
  // 65536^2 wraps to 0 and 65537^2 to 131073 in 32 bits.
  expect_contains(refusal({65536, 0, 65536, 1}, 8), {"= 4294967296"});
  expect_contains(refusal({65537, 1, 65537, 1}, 131073), {"= 4295098369"});
}

TEST(Mesh, CoordinatesCountTensorParallelFastest) {
  const MeshShape shape{2, 3, 2, 4};
  EXPECT_EQ(mesh_coordinates(shape, 0), (MeshCoordinates{0, 0, 0, 0}));
  EXPECT_EQ(mesh_coordinates(shape, 3), (MeshCoordinates{0, 0, 0, 3}));
  EXPECT_EQ(mesh_coordinates(shape, 4), (MeshCoordinates{0, 0, 1, 0}));
  EXPECT_EQ(mesh_coordinates(shape, 8), (MeshCoordinates{0, 1, 0, 0}));
  EXPECT_EQ(mesh_coordinates(shape, 24), (MeshCoordinates{1, 0, 0, 0}));
  EXPECT_EQ(mesh_coordinates(shape, 47), (MeshCoordinates{1, 2, 1, 3}));
  for (int rank = 0; rank < 48; ++rank) EXPECT_EQ(mesh_rank(shape, mesh_coordinates(shape, rank)), rank);
}

std::vector<int> members(const comm::Communicator& group) {
  std::vector<int> ranks;
  for (int r = 0; r < group.size(); ++r) ranks.push_back(group.world_rank(r));
  return ranks;
}

TEST(Mesh, GroupsRunAlongOneAxis) {
  test::run_ranks(8, [](comm::World& world) {
    Mesh mesh(world.group(), {2, 2, 1, 2});
    EXPECT_EQ(mesh.dp_group().rank(), mesh.coordinates().dp);
    EXPECT_EQ(mesh.pp_group().rank(), mesh.coordinates().pp);
    EXPECT_EQ(mesh.tp_group().rank(), mesh.coordinates().tp);
    EXPECT_EQ(members(mesh.sp_group()), std::vector<int>{world.rank()});
    if (world.rank() == 5) {
      EXPECT_EQ(mesh.coordinates(), (MeshCoordinates{1, 0, 0, 1}));
      EXPECT_EQ(members(mesh.tp_group()), (std::vector<int>{4, 5}));
      EXPECT_EQ(members(mesh.dp_group()), (std::vector<int>{5, 7}));
      EXPECT_EQ(members(mesh.pp_group()), (std::vector<int>{1, 5}));
    }
    // Every group works: a sum of world ranks over it is what its members say.
    for (comm::Communicator* group : {&mesh.pp_group(), &mesh.dp_group(), &mesh.sp_group(), &mesh.tp_group()}) {
      int32_t sum = world.rank(), expected = 0;
      for (int rank : members(*group)) expected += rank;
      group->all_reduce({&sum, 1, DType::I32}, {&sum, 1, DType::I32}, ReduceOp::Sum).wait();
      EXPECT_EQ(sum, expected);
    }
  });
}

TEST(Mesh, ShapeThatIsNotTheWorldIsACheck) {
  test::run_ranks(2, [](comm::World& world) { EXPECT_THROW(Mesh(world.group(), {1, 3, 1, 1}), CheckError); });
}

}  // namespace
}  // namespace sixfold::parallel
