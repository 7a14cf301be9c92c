// How collectives on device memory are cut into pieces: tables made by hand.
#include "runtime/comm/cuda/piece_cuts.h"

#include <gtest/gtest.h>

#include <ostream>

namespace sixfold::comm {

std::ostream& operator<<(std::ostream& out, const PieceSpan& span) {
  return out << "{" << span.offset << ", " << span.staged << ", " << span.count << "}";
}

}  // namespace sixfold::comm

namespace sixfold::test {
namespace {

using comm::Call;
using comm::PieceCut;
using comm::PieceSpan;
using comm::Primitive;
using Spans = std::vector<PieceSpan>;

Call call(Primitive primitive, int rank, int size, size_t count, const std::vector<size_t>* counts = nullptr) {
  Call c;
  c.primitive = primitive;
  c.rank = rank;
  c.size = size;
  c.root = 1;
  c.count = count;
  c.counts = counts;
  return c;
}

TEST(PieceCuts, StepsFillAPieceAndBeginWhereVectorsDo) {
  EXPECT_EQ(comm::piece_step(Primitive::AllReduce, 8, 4, 1 << 20), 262144u);
  EXPECT_EQ(comm::piece_step(Primitive::AllGather, 8, 4, 1 << 20), 32768u);
  EXPECT_EQ(comm::piece_step(Primitive::ReduceScatter, 3, 2, 1024), 128u);  // of 170
  EXPECT_EQ(comm::piece_step(Primitive::AllToAll, 3, 8, 1024), 42u);        // less than a vector's worth: all of it
  EXPECT_EQ(comm::piece_step(Primitive::AllToAll, 500, 8, 1024), 1u);
  EXPECT_EQ(comm::piece_side_bytes(500, 1024), 4000u);
  EXPECT_EQ(comm::piece_side_bytes(8, 1024), 1024u);
}

TEST(PieceCuts, BuffersWithoutBlocks) {
  const PieceCut cut = comm::cut_piece(call(Primitive::AllReduce, 0, 4, 100), 64, 100);
  EXPECT_EQ(cut.count, 36u);
  EXPECT_EQ(cut.counts, nullptr);
  EXPECT_EQ(cut.in, (Spans{{64, 0, 36}}));
  EXPECT_EQ(cut.out, (Spans{{64, 0, 36}}));
  EXPECT_EQ(comm::cut_piece(call(Primitive::AllReduce, 0, 4, 0), 0, 0).in, Spans{});
}

TEST(PieceCuts, OnlyTheRootBringsABroadcastOrTakesAReduction) {
  const PieceCut at_root = comm::cut_piece(call(Primitive::Broadcast, 1, 3, 10), 4, 8);
  EXPECT_EQ(at_root.in, (Spans{{4, 0, 4}}));
  EXPECT_EQ(at_root.out, Spans{});
  const PieceCut elsewhere = comm::cut_piece(call(Primitive::Broadcast, 2, 3, 10), 4, 8);
  EXPECT_EQ(elsewhere.in, Spans{});
  EXPECT_EQ(elsewhere.out, (Spans{{4, 0, 4}}));
  EXPECT_EQ(comm::cut_piece(call(Primitive::Reduce, 1, 3, 10), 4, 8).out, (Spans{{4, 0, 4}}));
  EXPECT_EQ(comm::cut_piece(call(Primitive::Reduce, 0, 3, 10), 4, 8).out, Spans{});
  EXPECT_EQ(comm::cut_piece(call(Primitive::Reduce, 0, 3, 10), 4, 8).in, (Spans{{4, 0, 4}}));
}

TEST(PieceCuts, APieceOfEachBlock) {
  const PieceCut gather = comm::cut_piece(call(Primitive::AllGather, 2, 3, 10), 8, 10);
  EXPECT_EQ(gather.count, 2u);
  EXPECT_EQ(gather.in, (Spans{{8, 0, 2}}));
  EXPECT_EQ(gather.out, (Spans{{8, 0, 2}, {18, 2, 2}, {28, 4, 2}}));
  const PieceCut scatter = comm::cut_piece(call(Primitive::ReduceScatter, 2, 3, 10), 0, 8);
  EXPECT_EQ(scatter.in, (Spans{{0, 0, 8}, {10, 8, 8}, {20, 16, 8}}));
  EXPECT_EQ(scatter.out, (Spans{{0, 0, 8}}));
}

TEST(PieceCuts, BlocksOfDifferentSizeEndOneByOne) {
  const std::vector<size_t> counts = {5, 0, 9};
  const PieceCut first = comm::cut_piece(call(Primitive::AllGather, 0, 3, 9, &counts), 0, 4);
  EXPECT_EQ(*first.counts, (std::vector<size_t>{4, 0, 4}));
  EXPECT_EQ(first.in, (Spans{{0, 0, 4}}));
  EXPECT_EQ(first.out, (Spans{{0, 0, 4}, {5, 4, 4}}));
  const PieceCut second = comm::cut_piece(call(Primitive::AllGather, 0, 3, 9, &counts), 4, 8);
  EXPECT_EQ(*second.counts, (std::vector<size_t>{1, 0, 4}));
  EXPECT_EQ(second.count, 4u);
  EXPECT_EQ(second.in, (Spans{{4, 0, 1}}));
  EXPECT_EQ(second.out, (Spans{{4, 0, 1}, {9, 1, 4}}));
  const PieceCut last = comm::cut_piece(call(Primitive::AllGather, 0, 3, 9, &counts), 8, 12);
  EXPECT_EQ(*last.counts, (std::vector<size_t>{0, 0, 1}));
  EXPECT_EQ(last.in, Spans{});
  EXPECT_EQ(last.out, (Spans{{13, 0, 1}}));

  // Rank 1 of an all-to-all sends 6 to rank 0 and 3 to itself, and receives 1 from rank 0.
  const std::vector<size_t> table = {0, 1, 6, 3};
  const PieceCut exchange = comm::cut_piece(call(Primitive::AllToAll, 1, 2, 6, &table), 0, 4);
  EXPECT_EQ(*exchange.counts, (std::vector<size_t>{0, 1, 4, 3}));
  EXPECT_EQ(exchange.in, (Spans{{0, 0, 4}, {6, 4, 3}}));
  EXPECT_EQ(exchange.out, (Spans{{0, 0, 1}, {1, 1, 3}}));
}

}  // namespace
}  // namespace sixfold::test
