// Groups and Worlds that come and go: in any order, moved from, with operations in flight, never destroyed, many times.
#include <dirent.h>

#include <fstream>
#include <optional>

#include "tests/harness.h"

namespace sixfold::test {
namespace {

comm::Buf buf(std::vector<float>& x) {
  return {x.data(), x.size(), DType::F32};
}

TEST(Lifetime, GroupsEndInAnyOrder) {
  run_ranks(4, [](comm::World& world) {
    for (int first : {0, 1, 2}) {
      std::optional<comm::Communicator> groups[3];
      groups[0].emplace(world.group().split(0, 0));
      groups[1].emplace(world.group().split(world.rank() % 2, -world.rank()));
      groups[2].emplace(groups[0]->split(0, -world.rank()));  // outlives the group that it comes from
      std::vector<std::vector<float>> x(3, std::vector<float>(5000, 1.0f));
      // In flight, and not waited for by anyone.
      for (size_t i = 0; i < 3; ++i) groups[i]->all_reduce(buf(x[i]), buf(x[i]), ReduceOp::Sum);
      for (int i = 0; i < 3; ++i) groups[(first + i) % 3].reset();
      // Destroying a group carries out what is under way.
      EXPECT_EQ(x[0][4999], 4);
      EXPECT_EQ(x[1][4999], 2);
      EXPECT_EQ(x[2][4999], 4);
    }
    world.group().barrier();
  });
}

TEST(Lifetime, OfMovedCommunicators) {
  run_ranks(2, [](comm::World& world) {
    comm::Communicator a = world.group().split(0, 0);
    comm::Communicator b = std::move(a);
    b = std::move(b);  // NOLINT: what must do no harm
    comm::Communicator c = world.group().split(0, 0);
    b = std::move(c);  // which ends what b was
    b.barrier();
  });
}

TEST(Lifetime, AWorkOutlivesItsGroup) {
  run_ranks(2, [](comm::World& world) {
    std::vector<float> x(5000, 1.0f);
    comm::Work work;
    {
      comm::Communicator group = world.group().split(0, 0);
      work = group.all_reduce(buf(x), buf(x), ReduceOp::Sum);
    }
    work.wait();
    EXPECT_TRUE(work.test());
    EXPECT_EQ(x[4999], 2);
  });
}

// Whoever forgets to destroy a group loses its memory and nothing else.
TEST(Lifetime, AGroupThatIsNeverDestroyed) {
  static comm::Communicator* forgotten[2];  // reachable, so that no tool calls it lost
  run_ranks(2, [](comm::World& world) {
    auto* group = new comm::Communicator(world.group().split(0, 0));
    group->barrier();
    forgotten[world.rank()] = group;
    world.group().barrier();
  });
  EXPECT_NE(forgotten[0], forgotten[1]);
}

struct Holdings {
  int descriptors = 0, mappings = 0;
};
Holdings holdings() {
  Holdings h;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++h.descriptors;
  closedir(dir);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++h.mappings;
  return h;
}

TEST(Lifetime, WorldsLeaveNothingBehind) {
  const auto run_one = [](int round) {
    std::vector<std::vector<float>> buffers(3, std::vector<float>(1000, 1.0f));  // outlive what is in flight
    run_ranks(3, [&](comm::World& world) {
      comm::Communicator half = world.group().split(world.rank() % 2, 0);
      half.barrier();
      std::vector<float>& x = buffers[static_cast<size_t>(world.rank())];
      world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
      if (round % 2 == 0) world.group().barrier();
    });
  };
  for (int round = 0; round < 20; ++round) run_one(round);
  const Holdings before = holdings();
  for (int round = 0; round < 200; ++round) run_one(round);
  const Holdings after = holdings();
  EXPECT_EQ(after.descriptors, before.descriptors);
  // Allocators keep and split what they hold: a mapping that is lost each round would be hundreds.
  EXPECT_LT(after.mappings, before.mappings + 40);
}

}  // namespace
}  // namespace sixfold::test
