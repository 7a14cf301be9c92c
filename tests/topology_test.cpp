// Topology: nodes, rails and the ring, worked out by hand.
#include "runtime/comm/schedule/topology.h"

#include "tests/harness.h"

namespace sixfold::comm {
namespace {

TEST(Topology, ParsesNodesTimesRanks) {
  const Topology t = Topology::parse("2x3", 6);
  EXPECT_EQ(t.num_nodes(), 2);
  EXPECT_EQ(t.ranks_per_node(), 3);
  EXPECT_EQ(t.ranks_of(1), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(t.rail_of(4), 1);
  EXPECT_EQ(t.link(0, 2), LinkClass::Intra);
  EXPECT_EQ(t.link(2, 3), LinkClass::Inter);
  EXPECT_EQ(t.to_string(), "2 nodes: 0 1 2 | 3 4 5");
}

TEST(Topology, RefusesWhatDoesNotCoverTheRanks) {
  for (const char* text : {"", "x", "2", "2x", "x3", "2x2", "0x6", "2x3x1", "-2x-3", "2 x 3", "99999999999x1"}) {
    try {
      Topology::parse(text, 6);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("1x6, 2x3, 3x2, 6x1"), std::string::npos) << error.what();
    }
  }
}

// Hosts that launchers fill in turn: rank 0 on a, rank 1 on b, rank 2 on a, ...
TEST(Topology, KeepsNodeMatesAdjacentInTheRing) {
  const Topology t = Topology::of_hosts({"a", "b", "a", "b", "a"});
  EXPECT_EQ(t.ring_order(), (std::vector<int>{0, 2, 4, 1, 3}));
  EXPECT_EQ(t.ring_position(1), 3);
  EXPECT_EQ(t.ranks_per_node(), 0);
  EXPECT_EQ(t.rail_of(4), 2);
  EXPECT_TRUE(t.spans_nodes());
}

TEST(Topology, OfAGroup) {
  const Topology world = Topology::parse("2x4", 8);
  const Topology rail = world.group({5, 1});
  EXPECT_EQ(rail.num_nodes(), 2);
  EXPECT_EQ(rail.node_of(0), 0);
  EXPECT_EQ(rail.ranks_per_node(), 1);
  EXPECT_FALSE(world.group({4, 7, 5}).spans_nodes());
}

}  // namespace
}  // namespace sixfold::comm
