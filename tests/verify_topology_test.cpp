// Builders on several nodes: proved right, and what they send inside nodes and between them.
#include <numeric>
#include <optional>

#include "tests/verify_harness.h"

namespace sixfold::comm {
namespace {

/// 1 x N, 2 x N/2, 4 x N/4, N/2 x 2 and N x 1, where N divides.
std::vector<Topology> regular_topologies(int size) {
  std::vector<Topology> topologies;
  std::vector<int> known;
  for (int nodes : {1, 2, 4, size / 2, size}) {
    const bool new_one = nodes > 0 && std::find(known.begin(), known.end(), nodes) == known.end();
    if (!new_one || size % nodes != 0) continue;
    known.push_back(nodes);
    topologies.push_back(Topology::parse(std::to_string(nodes) + "x" + std::to_string(size / nodes), size));
  }
  return topologies;
}

/// Ranks dealt out to nodes in turn: 0 1 2 0 1 2 ...
Topology interleaved(int size, int nodes) {
  std::vector<int> node_of;
  for (int rank = 0; rank < size; ++rank) node_of.push_back(rank % nodes);
  return Topology(node_of);
}

void expect_right(Call call, Algorithm algorithm) {
  for (bool in_place : {false, true}) {
    for (int num_slots : {2, 8}) {
      call.in_place = in_place;
      const VerifyReport report = verify_joined(call, algorithm, num_slots, 3);
      ASSERT_TRUE(report.ok()) << describe(call, algorithm) << " slots " << num_slots << ": " << report.detail;
    }
  }
}

class OnNodes : public testing::TestWithParam<BuilderCase> {};

TEST_P(OnNodes, IsProvedCorrect) {
  const auto [primitive, algorithm] = GetParam();
  for (int size : verified_sizes()) {
    const bool large = size > 17, blocks = !has_root(primitive) && primitive != Primitive::AllReduce;
    const size_t n = static_cast<size_t>(size);
    std::vector<Topology> topologies = regular_topologies(size);
    if (size % 3 == 0) topologies.push_back(interleaved(size, 3));
    if (algorithm == Algorithm::Ring) topologies.push_back(interleaved(size, 2));
    for (const Topology& topology : topologies) {
      for (size_t count :
           large&& blocks ? std::vector<size_t>{7} : std::vector<size_t>{0, 1, n + 1, 2 * n, 5 * n + 3}) {
        for (int root : has_root(primitive) && !large ? std::vector<int>{0, size / 2, size - 1} : std::vector<int>{0}) {
          Call call = make_call(primitive, size, count, root);
          call.topology = &topology;
          expect_right(call, algorithm);
        }
      }
    }
  }
}

/// Those whose steps depend on the topology.
std::vector<BuilderCase> builders_that_look_at_nodes() {
  std::vector<BuilderCase> cases;
  const Topology topology = Topology::parse("2x2", 4);
  for (const BuilderCase& c : all_builders(&topology)) {
    if (c.algorithm == Algorithm::Ring || c.algorithm == Algorithm::Hierarchical) cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Verify, OnNodes, testing::ValuesIn(builders_that_look_at_nodes()),
                         [](const auto& test) { return case_name(test.param); });

// ---- By link class -------------------------------------------------------------------------------------------------

VerifyReport report_on(const Topology& topology, Primitive primitive, Algorithm algorithm, size_t count, int root = 0) {
  Call call = make_call(primitive, topology.size(), count, root);
  call.topology = &topology;
  const VerifyReport report = verify_builder(call, algorithm, 3, 64);
  EXPECT_TRUE(report.ok()) << describe(call, algorithm) << ": " << report.detail;
  return report;
}

TEST(ByLinkClass, HierarchicalAllReduceSendsOneRailPartBetweenNodes) {
  for (const auto& [nodes, per_node] :
       {std::pair<size_t, size_t>(2, 4), std::pair<size_t, size_t>(4, 2), std::pair<size_t, size_t>(3, 3),
        std::pair<size_t, size_t>(1, 4), std::pair<size_t, size_t>(5, 1)}) {
    const size_t size = nodes * per_node, count = 10 * size;
    const Topology topology =
        Topology::parse(std::to_string(nodes) + "x" + std::to_string(per_node), static_cast<int>(size));
    const VerifyReport report = report_on(topology, Primitive::AllReduce, Algorithm::Hierarchical, count);
    // 2(n-1)/n S inside the node, 2(M-1)/M S/n between nodes; S = 10 M n.
    const SentByLink expected{20 * (per_node - 1) * nodes, 20 * (nodes - 1)};
    EXPECT_EQ(report.sent_by_link, std::vector<SentByLink>(size, expected)) << topology.to_string();
  }
}

TEST(ByLinkClass, HierarchicalBlocksCrossOnce) {
  const Topology topology = Topology::parse("2x3", 6);
  for (Primitive primitive : {Primitive::ReduceScatter, Primitive::AllGather}) {
    // M(n-1) blocks of 10 inside, M-1 between.
    EXPECT_EQ(report_on(topology, primitive, Algorithm::Hierarchical, 10).sent_by_link,
              std::vector<SentByLink>(6, SentByLink{40, 10}));
  }
}

TEST(ByLinkClass, HierarchicalAllToAllSendsNoMoreBetweenNodes) {
  const Topology topology = Topology::parse("3x4", 12);
  // M(n-1) blocks of 10 inside; (M-1) n between, as pairwise.
  EXPECT_EQ(report_on(topology, Primitive::AllToAll, Algorithm::Hierarchical, 10).sent_by_link,
            std::vector<SentByLink>(12, SentByLink{90, 80}));
  EXPECT_EQ(report_on(topology, Primitive::AllToAll, Algorithm::Pairwise, 10).sent_by_link,
            std::vector<SentByLink>(12, SentByLink{30, 80}));
}

/// Elements of all ranks by link class.
SentByLink total(const VerifyReport& report) {
  SentByLink sum{};
  for (const SentByLink& sent : report.sent_by_link) {
    sum[0] += sent[0];
    sum[1] += sent[1];
  }
  return sum;
}

TEST(ByLinkClass, HierarchicalEntersEachNodeOnce) {
  for (int root : {0, 4, 7}) {
    const Topology topology = Topology::parse("4x3", 12);
    for (Primitive primitive : {Primitive::Broadcast, Primitive::Reduce}) {
      // Eleven ranks get the 10 elements, or send them: three along the rail, eight inside nodes.
      EXPECT_EQ(total(report_on(topology, primitive, Algorithm::Hierarchical, 10, root)), (SentByLink{80, 30}));
    }
  }
}

// Of the ring's N edges one leaves each node, however ranks are dealt out: its rank alone sends between nodes.
TEST(ByLinkClass, RingCrossesEachNodeBoundaryOnce) {
  for (const Topology& topology : {Topology::parse("2x4", 8), Topology::parse("4x2", 8), interleaved(8, 2),
                                   interleaved(9, 4), Topology({0, 1, 1, 0, 2, 1, 0})}) {
    for (Primitive primitive : {Primitive::AllReduce, Primitive::AllGather, Primitive::ReduceScatter}) {
      const VerifyReport report =
          report_on(topology, primitive, Algorithm::Ring, 6 * static_cast<size_t>(topology.size()));
      for (int node = 0; node < topology.num_nodes(); ++node) {
        const auto crosses = [&](int rank) { return report.sent_by_link[static_cast<size_t>(rank)][1] > 0; };
        const std::vector<int>& ranks = topology.ranks_of(node);
        EXPECT_EQ(std::count_if(ranks.begin(), ranks.end(), crosses), 1) << topology.to_string() << " node " << node;
      }
    }
  }
}

TEST(ByLinkClass, RingInRankOrderWouldCrossEverywhere) {
  const Topology topology = interleaved(8, 2);
  const auto by_rank = [](Call call) {
    call.topology = nullptr;
    return find_builder(Primitive::AllGather, Algorithm::Ring)(call);
  };
  Call call = make_call(Primitive::AllGather, 8, 5);
  call.topology = &topology;
  const VerifyReport report = verify(call, by_rank, 3, 64, 128);
  EXPECT_TRUE(report.ok()) << report.detail;
  EXPECT_EQ(total(report), (SentByLink{0, 8 * 7 * 5}));
  EXPECT_EQ(total(report_on(topology, Primitive::AllGather, Algorithm::Ring, 5)), (SentByLink{6 * 35, 2 * 35}));
}

TEST(ByLinkClass, IsCountedWithATopologyOnly) {
  EXPECT_TRUE(verify_builder(make_call(Primitive::AllGather, 4, 5), Algorithm::Ring, 3, 64).sent_by_link.empty());
  const Topology topology = Topology::parse("2x2", 4);
  for (const auto& [primitive, algorithm] : all_builders(&topology)) {
    const VerifyReport report = report_on(topology, primitive, algorithm, 40);
    for (size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(report.sent_by_link[rank][0] + report.sent_by_link[rank][1], report.sent_elements[rank]);
    }
  }
}

}  // namespace
}  // namespace sixfold::comm
