// Blocks of different size: where they lie, by hand, and builders proved on tables with zeros.
#include "tests/verify_harness.h"

namespace sixfold::comm {
namespace {

using Counts = std::vector<size_t>;

Call uneven_call(Primitive primitive, int size, const Counts& counts) {
  Call call = make_call(primitive, size, *std::max_element(counts.begin(), counts.end()));
  call.counts = &counts;
  return call;
}

using Place = std::pair<size_t, size_t>;
Place place_of(const Call& call, Buffer buffer, int index) {
  const Range range = block_range(call, buffer, index);
  return {range.begin, range.end};
}

TEST(UnevenBlocks, LieOneAfterAnother) {
  const Counts counts = {3, 0, 5, 2};
  Call gather = uneven_call(Primitive::AllGather, 4, counts);
  EXPECT_EQ(place_of(gather, Buffer::Output, 0), Place(0, 3));
  EXPECT_EQ(place_of(gather, Buffer::Output, 1), Place(3, 3));
  EXPECT_EQ(place_of(gather, Buffer::Output, 2), Place(3, 8));
  EXPECT_EQ(place_of(gather, Buffer::Output, 3), Place(8, 10));
  gather.rank = 2;
  EXPECT_EQ(Place(input_count(gather), output_count(gather)), Place(5, 10));
  gather.rank = 1;
  EXPECT_EQ(Place(input_count(gather), output_count(gather)), Place(0, 10));
  Call scatter = uneven_call(Primitive::ReduceScatter, 4, counts);
  scatter.rank = 3;
  EXPECT_EQ(place_of(scatter, Buffer::Input, 3), Place(8, 10));
  EXPECT_EQ(Place(input_count(scatter), output_count(scatter)), Place(10, 2));
}

// Row r: what rank r sends to ranks 0, 1 and 2.
TEST(UnevenBlocks, OfAllToAllAreRowAndColumn) {
  const Counts counts = {1, 2, 3,  //
                         0, 4, 5,  //
                         6, 0, 7};
  Call call = uneven_call(Primitive::AllToAll, 3, counts);
  call.rank = 1;
  EXPECT_EQ(place_of(call, Buffer::Input, 0), Place(0, 0));
  EXPECT_EQ(place_of(call, Buffer::Input, 1), Place(0, 4));
  EXPECT_EQ(place_of(call, Buffer::Input, 2), Place(4, 9));
  EXPECT_EQ(place_of(call, Buffer::Output, 0), Place(0, 2));
  EXPECT_EQ(place_of(call, Buffer::Output, 1), Place(2, 6));
  EXPECT_EQ(place_of(call, Buffer::Output, 2), Place(6, 6));
  EXPECT_EQ(Place(input_count(call), output_count(call)), Place(9, 6));
  call.rank = 0;
  EXPECT_EQ(Place(input_count(call), output_count(call)), Place(6, 7));
}

// With blocks of one size the table says what the formula without one says.
TEST(UnevenBlocks, OfOneSizeAreThoseWithoutATable) {
  for (const auto& [primitive, algorithm] : all_builders()) {
    if (!supports_counts(primitive, algorithm)) continue;
    const Counts counts(primitive == Primitive::AllToAll ? 25 : 5, 7);
    for (Call call : {make_call(primitive, 5, 7), uneven_call(primitive, 5, counts)}) {
      call.rank = 3;
      call.pass_offset = 2;
      call.pass_count = 4;
      Call even = call;
      even.counts = nullptr;
      const auto text = [&](const Call& c) {
        std::string lines;
        for (Step step : find_builder(primitive, algorithm)(c).steps) {
          step.lands = {};  // where blocks lie at a peer is known without a table only
          lines += to_string(step) + "\n";
        }
        return lines;
      };
      EXPECT_EQ(text(call), text(even)) << describe(call, algorithm);
    }
  }
}

TEST(UnevenBlocks, AreTakenByTheseBuilders) {
  using A = Algorithm;
  const auto takers = [](Primitive primitive) {
    std::vector<Algorithm> found;
    for (Algorithm algorithm : kAlgorithms) {
      if (supports_counts(primitive, algorithm)) found.push_back(algorithm);
    }
    return found;
  };
  EXPECT_EQ(takers(Primitive::AllGather),
            (std::vector<A>{A::Ring, A::Direct, A::RecursiveDoubling, A::HalvingDoubling, A::Hierarchical}));
  EXPECT_EQ(takers(Primitive::ReduceScatter),
            (std::vector<A>{A::Ring, A::Direct, A::HalvingDoubling, A::Hierarchical}));
  EXPECT_EQ(takers(Primitive::AllToAll), (std::vector<A>{A::Pairwise, A::SpreadOut}));
  for (Primitive primitive : {Primitive::Broadcast, Primitive::Reduce, Primitive::AllReduce}) {
    EXPECT_TRUE(takers(primitive).empty());
  }
}

/// Tables for `num` blocks: falling, some zeros, all but one zero, all zero, no pattern.
std::vector<Counts> tables(size_t num) {
  Counts falling, gaps, one(num, 0), scattered;
  for (size_t i = 0; i < num; ++i) {
    falling.push_back(num - i);
    gaps.push_back(i % 3 == 0 ? 0 : 4);
    scattered.push_back((i * i * 7 + 3 * i) % 13);
  }
  one[num / 2] = 11;
  return {falling, gaps, one, Counts(num, 0), scattered};
}

void expect_right(Call call, Algorithm algorithm) {
  for (bool in_place : {false, true}) {
    if (in_place && call.primitive == Primitive::AllToAll) continue;
    call.in_place = in_place;
    for (int num_slots : {2, 8}) {
      for (const VerifyReport& report :
           {verify_builder(call, algorithm, num_slots, 3), verify_joined(call, algorithm, num_slots, 3)}) {
        ASSERT_TRUE(report.ok()) << describe(call, algorithm) << " slots " << num_slots << ": " << report.detail;
      }
    }
  }
}

class UnevenBuilder : public testing::TestWithParam<BuilderCase> {};

TEST_P(UnevenBuilder, IsProvedCorrect) {
  const auto [primitive, algorithm] = GetParam();
  for (int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32}) {
    const size_t n = static_cast<size_t>(size);
    for (const Counts& counts : tables(primitive == Primitive::AllToAll ? n * n : n)) {
      if (size == 32 && counts[0] > 32) continue;  // the falling table of a matrix: a million elements
      const std::string nodes = size % 3 == 0 ? std::to_string(size / 3) + "x3" : "1x" + std::to_string(size);
      const Topology topology = Topology::parse(nodes, size);
      Call call = uneven_call(primitive, size, counts);
      if (algorithm == Algorithm::Hierarchical) call.topology = &topology;
      expect_right(call, algorithm);
    }
  }
}

std::vector<BuilderCase> uneven_builders() {
  std::vector<BuilderCase> cases;
  const Topology topology = Topology::parse("2x2", 4);
  for (const BuilderCase& c : all_builders(&topology)) {
    if (supports_counts(c.primitive, c.algorithm)) cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Verify, UnevenBuilder, testing::ValuesIn(uneven_builders()),
                         [](const auto& test) { return case_name(test.param); });

TEST(UnevenBlocks, OfAllToAllInPlaceAreRefused) {
  const Counts counts = {1, 2, 3, 4};
  Call call = uneven_call(Primitive::AllToAll, 2, counts);
  call.in_place = true;
  call.pass_count = call.count;
  for (Algorithm algorithm : {Algorithm::Pairwise, Algorithm::SpreadOut}) {
    EXPECT_THROW(find_builder(Primitive::AllToAll, algorithm)(call), CheckError);
  }
}

// Ranks that work with different tables do not agree on what travels.
TEST(UnevenBlocks, DifferentTablesAreFoundOut) {
  const Counts counts = {3, 1, 4, 1}, other = {3, 1, 3, 2};
  const auto builder = [&](Call call) {
    if (call.rank == 2) call.counts = &other;
    return find_builder(Primitive::AllGather, Algorithm::Ring)(call);
  };
  const VerifyReport report = verify(uneven_call(Primitive::AllGather, 4, counts), builder, 3, 8, 16);
  EXPECT_EQ(report.fault, Fault::SizeMismatch) << report.detail;
}

// Blocks that begin at 0, 2^31 + 17, 2^31 + 22 and 2^32 + 38; what the last pass covers is the end of the large ones
// only.
TEST(UnevenBlocks, HugeOffsets) {
  constexpr size_t kHuge = (size_t{1} << 31) + 17;
  const Counts counts = {kHuge, 5, kHuge - 1, kHuge};
  Call call = uneven_call(Primitive::AllGather, 4, counts);
  call.pass_offset = kHuge - 10;
  call.pass_count = 10;
  std::vector<std::string> received;
  for (const Step& step : find_builder(Primitive::AllGather, Algorithm::Direct)(call).steps) {
    if (step.recv_peer != kNoPeer) received.push_back(to_string(step));
  }
  EXPECT_EQ(received, (std::vector<std::string>{"ch0  recv 3 -> Output[6442450989,6442450999)",
                                                "ch0  recv 2 -> Output[4294967325,4294967334)",
                                                "ch0  recv 1 -> Output[2147483670,2147483670)"}));
}

}  // namespace
}  // namespace sixfold::comm
