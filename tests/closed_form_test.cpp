// The closed forms beside the simulation, which shares nothing with them but the profile, and beside values worked out
// by hand.
#include "runtime/comm/schedule/closed_form.h"

#include <chrono>
#include <cmath>

#include "runtime/core/error.h"
#include "tests/harness.h"

namespace sixfold::comm {
namespace {

/// Intra: 1 us and 1 GB/s. Inter: 5 us and 0.1 GB/s. Reductions: 5 GB/s.
Profile test_profile(int num_rails = 1) {
  return {
      .name = "test", .intra = {1e-6, 1e9}, .inter = {5e-6, 1e8}, .reduce_bytes_per_s = 5e9, .num_rails = num_rails};
}

/// `count` elements of one byte; every message is one slice, unless `links` says otherwise.
CostQuery query(Primitive primitive, Algorithm algorithm, int num_nodes, int ranks_per_node, size_t count,
                LinkShape links = {4, size_t{1} << 40}) {
  return {primitive, algorithm, num_nodes, ranks_per_node, count, 1, links};
}

double closed_us(const CostQuery& q, int num_rails = 1) {
  return closed_form_seconds(q, test_profile(num_rails)) * 1e6;
}

// ---- By hand -------------------------------------------------------------------------------------------------------

TEST(ClosedForm, TextbookFormulasForAnyNumberOfRanks) {
  const double n = 16384;
  EXPECT_NEAR(closed_us(query(Primitive::AllReduce, Algorithm::Ring, 1, 16384, 16384000)),
              2 * (n - 1) * (1 + 1) + (n - 1) * 0.2, 1e-3);
  EXPECT_NEAR(closed_us(query(Primitive::Broadcast, Algorithm::Ring, 1, 16384, 1000)), (n - 1) * 2, 1e-3);
  // 14 levels, of which a path takes second children (a message later) 13 times at most.
  EXPECT_NEAR(closed_us(query(Primitive::Broadcast, Algorithm::Tree, 1, 16384, 1000)), 13 * (1 + 2), 1e-3);
  EXPECT_NEAR(closed_us(query(Primitive::AllToAll, Algorithm::Pairwise, 1, 16384, 1000)), (n - 1) * 2, 1e-3);
}

TEST(ClosedForm, LongMessagesKeepThePortBusy) {
  // Chain of 4 in slices of 1000: three hops of 2, then 99 slices of 1.
  EXPECT_NEAR(closed_us(query(Primitive::Broadcast, Algorithm::Ring, 1, 4, 100000, {100, 1000})), 6 + 99, 1e-6);
  // Two slots and latency 1: two slices of 1 every 1 + 1, the port is as fast. One of 500 (0.5): two every 1.5.
  EXPECT_NEAR(closed_us(query(Primitive::Broadcast, Algorithm::Ring, 1, 2, 4000, {2, 500})), 3 * 1.5 + 0.5 + 1.5, 1e-6);
  // Ring of 4, messages of 30 slices of 1: six of them back to back, and the latency of the last one.
  EXPECT_NEAR(closed_us(query(Primitive::AllReduce, Algorithm::Ring, 1, 4, 120000, {100, 1000})), 6 * 30 + 1, 1e-6);
}

TEST(ClosedForm, RingOverNodesGoesAtThePaceOfItsSlowestCycle) {
  // 2 x 4, no bytes to speak of, more slots than steps: 14 hops, 4 of them between nodes.
  const LinkShape many_slots{100, 1 << 20};
  EXPECT_NEAR(closed_us(query(Primitive::AllReduce, Algorithm::Ring, 2, 4, 8, many_slots)), 4 * 5 + 10, 0.1);
  // Messages of 100 slices of 10 us between nodes: 14 messages through the port, and one latency.
  EXPECT_NEAR(closed_us(query(Primitive::AllReduce, Algorithm::Ring, 2, 4, 800000, {101, 1000})), 14 * 1000 + 5, 20);
}

TEST(ClosedForm, DirectSharesTheCards) {
  // 2 x 4: 4 x 4 messages of 1000 bytes, 10 us each, through one card.
  EXPECT_NEAR(closed_us(query(Primitive::AllGather, Algorithm::Direct, 2, 4, 1000)), 5 + 160, 1e-6);
  // A card for each rank: four messages each, but all begin with the same receiver, so the last waits for three more.
  EXPECT_NEAR(closed_us(query(Primitive::AllGather, Algorithm::Direct, 2, 4, 1000), 4), 5 + 70, 1e-6);
  // The root's card alone: 4 x 1000 bytes.
  EXPECT_NEAR(closed_us(query(Primitive::Broadcast, Algorithm::Direct, 2, 4, 1000)), 5 + 40, 1e-6);
}

TEST(ClosedForm, NothingTakesNoTime) {
  EXPECT_EQ(closed_us(query(Primitive::AllReduce, Algorithm::Ring, 1, 4, 0)), 0);
  EXPECT_EQ(closed_us(query(Primitive::AllReduce, Algorithm::Tree, 1, 1, 1000)), 0);
}

TEST(ClosedForm, RefusesWhatHasNoFormula) {
  EXPECT_FALSE(has_closed_form(Primitive::AllGather, Algorithm::Tree));
  EXPECT_THROW(closed_us(query(Primitive::AllGather, Algorithm::Tree, 1, 4, 10)), CheckError);
  EXPECT_THROW(closed_us(query(Primitive::AllReduce, Algorithm::Auto, 1, 4, 10)), CheckError);
  EXPECT_THROW(closed_us(query(Primitive::AllReduce, Algorithm::Ring, 0, 4, 10)), CheckError);
}

TEST(ClosedForm, ExistsForEveryBuilder) {
  for (Primitive primitive : kCollectives) {
    for (Algorithm algorithm : algorithms_of(primitive)) {
      EXPECT_TRUE(has_closed_form(primitive, algorithm))
          << primitive_name(primitive) << " " << algorithm_name(algorithm);
    }
  }
}

// ---- Beside the simulation -----------------------------------------------------------------------------------------

/// How far, in percent, a formula may be from the simulation: on one node, over several.
struct Tolerance {
  double one_node = 1, several_nodes = 1;
};
struct FormulaRow {
  Primitive primitive;
  Algorithm algorithm;
  Tolerance one_slice;        // every message is one slice
  Tolerance few_slices = {};  // some slices, one pass or few
  Tolerance long_messages = {};
};

// A percent everywhere, but for estimates: trees whose passes overlap, trees over several nodes, direct sums whose
// passes get out of step, or that are cut into a part for each of many ranks.
const FormulaRow kRows[] = {
    {Primitive::AllReduce, Algorithm::Ring, {}},
    {Primitive::ReduceScatter, Algorithm::Ring, {}},
    {Primitive::AllGather, Algorithm::Ring, {}},
    {Primitive::Broadcast, Algorithm::Ring, {}},
    {Primitive::Reduce, Algorithm::Ring, {}},
    {Primitive::Broadcast, Algorithm::Tree, {}, {1, 16}, {}},
    {Primitive::Reduce, Algorithm::Tree, {1, 9}, {25, 26}, {1, 1}},
    {Primitive::AllReduce, Algorithm::Tree, {1, 5}, {10, 16}, {1, 3}},
    {Primitive::Broadcast, Algorithm::Direct, {}},
    {Primitive::Reduce, Algorithm::Direct, {}},
    {Primitive::AllGather, Algorithm::Direct, {}, {1, 2}, {1, 2}},
    {Primitive::ReduceScatter, Algorithm::Direct, {}, {4, 8}, {4, 8}},
    {Primitive::AllReduce, Algorithm::Direct, {1, 2}, {3, 8}, {3, 9}},
    {Primitive::AllToAll, Algorithm::Pairwise, {1, 3}},
    {Primitive::Broadcast, Algorithm::Binomial, {}},
    {Primitive::Reduce, Algorithm::Binomial, {}, {5, 6}, {}},
    {Primitive::Broadcast, Algorithm::DoubleTree, {1, 13}, {20, 17}, {4, 1}},
    {Primitive::Reduce, Algorithm::DoubleTree, {1, 17}, {10, 17}, {4, 1}},
    {Primitive::AllReduce, Algorithm::DoubleTree, {24, 12}, {22, 25}, {3, 1}},
    {Primitive::AllReduce, Algorithm::RecursiveDoubling, {}, {20, 5}, {21, 5}},
    {Primitive::AllGather, Algorithm::RecursiveDoubling, {}, {1, 3}, {1, 3}},
    {Primitive::AllReduce, Algorithm::HalvingDoubling, {5, 13}, {10, 1}, {4, 1}},
    {Primitive::ReduceScatter, Algorithm::HalvingDoubling, {19, 1}, {16, 3}, {9, 3}},
    {Primitive::AllGather, Algorithm::HalvingDoubling, {32, 1}, {9, 3}, {10, 3}},
    {Primitive::AllToAll, Algorithm::SpreadOut, {}, {1, 2}, {1, 2}},
    {Primitive::AllReduce, Algorithm::Hierarchical, {}, {1, 3}, {1, 3}},
    {Primitive::ReduceScatter, Algorithm::Hierarchical, {}, {1, 3}, {1, 3}},
    {Primitive::AllGather, Algorithm::Hierarchical, {}, {1, 3}, {1, 3}},
    {Primitive::Broadcast, Algorithm::Hierarchical, {}},
    {Primitive::Reduce, Algorithm::Hierarchical, {}, {1, 5}, {}},
    {Primitive::AllToAll, Algorithm::Hierarchical, {}},
};

struct Shape {
  int num_nodes, ranks_per_node;
};
const Shape kShapes[] = {{1, 2}, {1, 3}, {1, 4}, {1, 8}, {1, 16}, {1, 32}, {1, 64},
                         {2, 1}, {2, 2}, {2, 4}, {2, 8}, {4, 1},  {4, 2},  {4, 4}};

struct Size {
  Tolerance FormulaRow::*tolerance;
  size_t bytes, slot_bytes;  // of the full buffer
};
constexpr size_t kKi = 1024, kMi = kKi * kKi;
const Size kSizes[] = {{&FormulaRow::one_slice, kKi, kMi},           {&FormulaRow::one_slice, 16 * kKi, kMi},
                       {&FormulaRow::one_slice, 256 * kKi, kMi},     {&FormulaRow::few_slices, 256 * kKi, 64 * kKi},
                       {&FormulaRow::few_slices, 4 * kMi, 64 * kKi}, {&FormulaRow::long_messages, 16 * kMi, 64 * kKi}};

TEST(ClosedForm, EqualsTheSimulation) {
  for (const FormulaRow& row : kRows) {
    for (const Shape& shape : kShapes) {
      for (const Size& size : kSizes) {
        const bool blocks = row.primitive == Primitive::AllGather || row.primitive == Primitive::ReduceScatter ||
                            row.primitive == Primitive::AllToAll;
        CostQuery q{row.primitive,       row.algorithm, shape.num_nodes, shape.ranks_per_node, size.bytes / 4, 4,
                    {4, size.slot_bytes}};
        if (blocks) q.count /= static_cast<size_t>(q.size());
        const Prediction simulated = predict_seconds(q, test_profile());
        if (!simulated.simulated) continue;  // too long for a test; its neighbours are not
        const Tolerance& tolerance = row.*size.tolerance;
        const double percent = shape.num_nodes == 1 ? tolerance.one_node : tolerance.several_nodes;
        EXPECT_NEAR(closed_form_seconds(q, test_profile()) / simulated.seconds, 1, percent / 100)
            << primitive_name(row.primitive) << " " << algorithm_name(row.algorithm) << " on " << shape.num_nodes << "x"
            << shape.ranks_per_node << ", " << size.bytes << " bytes, slots of " << size.slot_bytes;
      }
    }
  }
}

// A card for each rank: messages of n ranks meet at one receiver's.
TEST(ClosedForm, EqualsTheSimulationWhereRanksHaveCardsOfTheirOwn) {
  for (const Shape& shape : kShapes) {
    for (size_t slot_bytes : {64 * kKi, kMi}) {
      CostQuery q{Primitive::AllGather, Algorithm::Direct, shape.num_nodes, shape.ranks_per_node, 0, 4,
                  {4, slot_bytes}};
      q.count = 4 * kMi / 4 / static_cast<size_t>(q.size());
      const Profile profile = test_profile(shape.ranks_per_node);
      EXPECT_NEAR(closed_form_seconds(q, profile) / predict_seconds(q, profile).seconds, 1, 0.03)
          << shape.num_nodes << "x" << shape.ranks_per_node << ", slots of " << slot_bytes;
    }
  }
}

// ---- predict_seconds -----------------------------------------------------------------------------------------------

TEST(Predict, SaysHow) {
  const LinkShape links{4, 1 << 20};
  EXPECT_TRUE(
      predict_seconds(query(Primitive::AllReduce, Algorithm::Ring, 2, 4, kMi, links), test_profile()).simulated);
  const CostQuery at_the_limit = query(Primitive::AllReduce, Algorithm::Tree, 32, 8, kMi, links);
  EXPECT_TRUE(predict_seconds(at_the_limit, test_profile()).simulated);
  CostQuery beyond = at_the_limit;
  beyond.num_nodes = 33;
  const Prediction by_formula = predict_seconds(beyond, test_profile());
  EXPECT_FALSE(by_formula.simulated);
  EXPECT_EQ(by_formula.seconds, closed_form_seconds(beyond, test_profile()));
  // A gigabyte in slots of 4 KiB is too many slices.
  const CostQuery fine = query(Primitive::AllReduce, Algorithm::Tree, 1, 8, 1024 * kMi, {4, 4096});
  EXPECT_FALSE(predict_seconds(fine, test_profile()).simulated);
  EXPECT_THROW(predict_seconds(query(Primitive::AllGather, Algorithm::Tree, 1, 8, 10), test_profile()), CheckError);
}

TEST(Predict, LargeClustersAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  int num_priced = 0;
  for (Primitive primitive : kCollectives) {
    for (Algorithm algorithm : algorithms_of(primitive)) {
      for (size_t bytes : {kKi, kMi, 1024 * kMi}) {
        const CostQuery q{primitive, algorithm, 2048, 8, std::max(bytes / 4 / 16384, size_t{1}), 4, {8, 512 * kKi}};
        const double seconds = predict_seconds(q, test_profile()).seconds;
        EXPECT_TRUE(std::isfinite(seconds) && seconds > 0) << primitive_name(primitive);
        ++num_priced;
      }
    }
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_LT(taken.count() / num_priced, 0.1);  // 0.3 ms when nothing else runs
}

}  // namespace
}  // namespace sixfold::comm
