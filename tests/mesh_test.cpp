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
                                             "does not divide", "Allowed: --pp", "product is 8", "--dp 0"});
  expect_contains(refusal({1, 3, 1, 1}, 4), {"--dp 3", "4 ranks", "= 3, but must be 4", "product is 4", "--dp 0"});
  expect_contains(refusal({1, 16, 1, 1}, 8), {"--dp 16", "= 16, but must be 8"});
  expect_contains(refusal({1, 2, 1, 1}, 1), {"on 1 rank:", "= 2, but must be 1"});
  expect_contains(refusal({0, 2, 1, 1}, 2), {"--pp 0", "at least 1", "Allowed"});
  expect_contains(refusal({1, 2, 1, -2}, 2), {"--tp -2", "at least 1"});
  expect_contains(refusal({1, -2, 1, 1}, 2), {"--dp -2", "at least 1"});
}

TEST(Mesh, DataParallelTakesWhatSequenceAndTensorLeave) {
  const MeshShape shape = resolve_mesh({1, 0, 2, 3}, 24);
  EXPECT_EQ(shape.dp, 4);
  EXPECT_EQ(resolve_mesh({1, 1, 1, 4}, 4).dp, 1);
}

std::string refused_load(const MeshShape& shape, const MeshLoad& load) {
  try {
    check_mesh(shape, load);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Mesh, OneMessageNamesAllThatIsNotCut) {
  const MeshLoad load{.num_layers = 4, .num_heads = 12, .vocab_size = 256, .seq_len = 16, .global_batch = 10};
  EXPECT_EQ(refused_load({1, 5, 2, 3}, load), "accepted");
  EXPECT_EQ(refused_load({1, 1, 1, 12}, load), "accepted");
  // 12 heads over 8 ranks, 10 rows over 4; 16 positions over 2 are fine.
  expect_contains(refused_load({1, 4, 2, 4}, load),
                  {"--dp 4 --sp 2 --tp 4: ", "--heads 12 is not cut by sp x tp = 8 (allowed: 1, 2, 3, 4, 6, 12)",
                   "--global-batch 10", "dp = 4", "8 or 12"});
  expect_contains(refused_load({1, 1, 3, 1}, load), {"--seq-len 16 is not cut by sp = 3 (allowed: 1, 2, 4, 8, 16)"});
  MeshLoad megatron = load;
  megatron.sequence_parallel = true;
  expect_contains(refused_load({1, 1, 1, 3}, megatron), {"--seq-len 16 is not cut by sp x tp = 3"});
  expect_contains(refused_load({1, 1, 1, 1}, megatron), {"--sequence-parallel megatron", "--tp 2"});
  expect_contains(refused_load({5, 1, 1, 1}, load), {"--layers 4", "--pp 5"});
  expect_contains(refused_load({1, 1, 1, 4}, {.num_heads = 4, .vocab_size = 3}), {"--tp 4", "vocabulary of 3"});
}

TEST(Mesh, TensorParallelGroupsThatSpanNodesAreWarnedOf) {
  // Links without latency, additions that cost nothing to speak of: 2 (N-1)/N S / bandwidth. S = 12 MB, N = 2: 12 ms on
  // 1 GB/s, 0.12 ms on 100 GB/s.
  const comm::Profile profile{.name = "test", .intra = {0, 100e9}, .inter = {0, 1e9}, .reduce_bytes_per_s = 1e15};
  const auto warning = [&](int tp, const char* nodes, int size) {
    return tp_crossing_warning({1, size / tp, 1, tp}, comm::Topology::parse(nodes, size), 12'000'000, profile);
  };
  EXPECT_EQ(warning(2, "2x2", 4), "");
  EXPECT_EQ(warning(4, "1x4", 4), "");
  EXPECT_EQ(warning(1, "4x1", 4), "");
  expect_contains(warning(2, "4x1", 4), {"--tp 2: 2 of 2", "some 12 ms on test links", "within a node 0.12 ms;"});
  expect_contains(warning(2, "2x3", 6), {"--tp 2: 1 of 3"});
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
    EXPECT_EQ(members(mesh.data_group()), members(mesh.dp_group()));  // sp == 1
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

TEST(Mesh, DataGroupIsDataParallelTimesSequence) {
  test::run_ranks(8, [](comm::World& world) {
    Mesh mesh(world.group(), {1, 2, 2, 2});
    const std::vector<int> even = {0, 2, 4, 6}, odd = {1, 3, 5, 7};
    EXPECT_EQ(members(mesh.data_group()), world.rank() % 2 == 0 ? even : odd);
    EXPECT_EQ(data_group_ranks(mesh.shape(), mesh.coordinates()), world.rank() % 2 == 0 ? even : odd);
    EXPECT_EQ(mesh.data_group().rank(), mesh.coordinates().dp * 2 + mesh.coordinates().sp);
  });
}

TEST(Mesh, ShapeThatIsNotTheWorldIsACheck) {
  test::run_ranks(2, [](comm::World& world) { EXPECT_THROW(Mesh(world.group(), {1, 3, 1, 1}), CheckError); });
}

}  // namespace
}  // namespace sixfold::parallel
