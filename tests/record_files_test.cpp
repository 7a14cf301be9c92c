// Files of records, from records written by hand.
#include "runtime/comm/observe/record_files.h"

#include <sstream>

#include "tests/trace_check.h"

namespace sixfold::test {
namespace {

using comm::LoggedOperation;
using comm::Primitive;
using comm::RankRecords;
using Kind = comm::ComputeSpan::Kind;

constexpr double kMs = 1e-3;
constexpr double kStart = 1234.5;  // seconds since the machine started, as clocks have it

LoggedOperation operation(uint32_t row, double enqueued_ms, double started_ms, double ended_ms) {
  LoggedOperation op;
  op.row = row;
  op.enqueued_s = kStart + enqueued_ms * kMs;
  op.started_s = kStart + started_ms * kMs;
  op.ended_s = ended_ms == 0 ? 0 : kStart + ended_ms * kMs;
  op.step = 2;
  op.count = 250;
  op.bytes = 1000;
  return op;
}

comm::ComputeSpan span(double start_ms, double end_ms, int32_t unit) {
  return {kStart + start_ms * kMs, kStart + end_ms * kMs, 2, 0, unit, Kind::Backward};
}

/// Rank `r` of two. Rows: an all-reduce, a send, a receive, an all-reduce by MPI.
RankRecords rank_of(int r) {
  RankRecords rank;
  rank.rank = r;
  rank.groups = {{"world", {0, 1}}, {"turned", {1, 0}}};
  rank.rows = {{"dp.grads", Primitive::AllReduce, comm::Algorithm::Ring, "own", 2},
               {"pp.activation", Primitive::Send, comm::Algorithm::Auto, "own", 2},
               {"pp.activation", Primitive::Recv, comm::Algorithm::Auto, "own", 2},
               {"mpi.sum", Primitive::AllReduce, comm::Algorithm::Auto, "mpi", 2}};
  rank.units = {"h.0", "h.1"};
  return rank;
}

// Rank 0 computes from 0 to 10 ms, h.1 until 4. Two all-reduces, the second queued behind the first; a send.
RankRecords sender() {
  RankRecords rank = rank_of(0);
  rank.spans = {span(0, 4, 1), span(4, 10, 0), span(0, 10, -1)};
  rank.operations = {operation(0, 4, 4, 9), operation(0, 6, 9, 14), operation(1, 5, 5, 7)};
  rank.operations[0].wait_s = 1 * kMs;
  rank.operations[0].sent_intra_bytes = 600;
  rank.operations[0].sent_inter_bytes = 400;
  rank.operations[1].sequence = 1;
  rank.operations[1].exposed_s = 4 * kMs;
  rank.operations[1].exposed_wait_s = 3 * kMs;
  rank.operations[1].wait_s = 3 * kMs;
  rank.operations[2].peer = 0;  // of the group in which ranks are turned
  rank.operations[2].group = 1;
  rank.operations[2].lane = 1;
  rank.operations[2].sequence = 17;
  rank.exposed = {{kStart + 10 * kMs, kStart + 14 * kMs, 3 * kMs, 1}};
  return rank;
}

// Rank 1 receives; has two sums of MPI under way at once, that end in another order; and one that has not ended.
RankRecords receiver() {
  RankRecords rank = rank_of(1);
  rank.operations = {operation(2, 1, 1, 6), operation(3, 2, 2, 8), operation(3, 3, 3, 9), operation(3, 11, 11, 0)};
  rank.operations[0].peer = 1;
  rank.operations[0].group = 1;
  rank.operations[0].lane = 1;
  rank.operations[0].sequence = 17;
  rank.operations[0].wait_s = 4.5 * kMs;
  rank.num_dropped = 3;
  return rank;
}

std::vector<json> log_lines(const std::vector<RankRecords>& ranks) {
  std::stringstream text;
  comm::write_comm_log(text, ranks);
  std::vector<json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(CommLogFile, IsALineAnOperationInOrder) {
  const std::vector<json> lines = log_lines({sender(), receiver()});
  ASSERT_EQ(lines.size(), 8u);
  for (size_t i = 1; i < 7; ++i) EXPECT_LE(lines[i - 1]["enqueue_s"], lines[i]["enqueue_s"]);
  EXPECT_EQ(lines[0], json::parse(R"({"step":2,"rank":1,"group":"turned","tag":"pp.activation","primitive":"recv",
      "algorithm":null,"backend":"own","dtype":"f32","count":250,"bytes":1000,"sent_intra_bytes":null,
      "sent_inter_bytes":null,"enqueue_s":1234.501,"start_s":1234.501,"end_s":1234.506,"wait_ms":4.5,"exposed_ms":0.0,
      "exposed_wait_ms":0.0,"exposed":[],"peer":0,"lane":1,"sequence":17})"));
  EXPECT_EQ(lines[3]["sent_inter_bytes"], 400);
  EXPECT_EQ(lines[3]["sent_intra_bytes"], 600);
  EXPECT_EQ(lines[3]["algorithm"], "ring");
  EXPECT_TRUE(lines[3]["peer"].is_null());
  EXPECT_EQ(lines[4]["peer"], 1);  // rank 0 of the turned group
  EXPECT_EQ(lines[5]["exposed"], json::parse("[[1234.51,1234.514]]"));
  EXPECT_EQ(lines[5]["exposed_wait_ms"], 3);
  EXPECT_TRUE(lines[6]["end_s"].is_null());
  EXPECT_TRUE(lines[6]["exposed_wait_ms"].is_null());  // MPI does not tell
  EXPECT_EQ(lines[7], json::parse(R"({"rank":1,"dropped":3})"));
}

TEST(TraceFile, IsAsTheFormatAsks) {
  std::stringstream text;
  comm::write_trace(text, std::vector<RankRecords>{sender(), receiver()});
  const Trace trace = check_trace(text.str());
  EXPECT_EQ(trace.process_names, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}}));

  // The outer slice first. Times are microseconds since the first event.
  const auto compute = trace.slices_of(0, "compute");
  ASSERT_EQ(compute.size(), 3u);
  EXPECT_EQ(compute[0]["name"], "backward of micro-batch 0");
  EXPECT_EQ(compute[0]["dur"], 10000);
  EXPECT_EQ(compute[1]["name"], "h.1 backward");
  EXPECT_EQ(compute[2]["ts"], 4000);

  const auto still = trace.slices_of(0, "standing still");
  ASSERT_EQ(still.size(), 1u);
  EXPECT_EQ(still[0]["name"], "dp.grads");
  EXPECT_EQ(still[0]["ts"], 10000);
  EXPECT_EQ(still[0]["dur"], 4000);
  EXPECT_DOUBLE_EQ(still[0]["args"]["late_ranks_ms"], 3);

  const auto sums = trace.slices_of(0, "world");
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[1]["ts"], 9000);
  EXPECT_EQ(sums[1]["cat"], "all_reduce");
  EXPECT_EQ(sums[1]["args"]["algorithm"], "ring");
  EXPECT_EQ(sums[1]["args"]["backend"], "own");
  EXPECT_FALSE(trace.slices_of(1, "world")[0]["args"].contains("algorithm"));  // as null in the log
  EXPECT_EQ(trace.slices_of(1, "world")[0]["args"]["backend"], "mpi");
  EXPECT_NEAR(sums[1]["args"]["queued_ms"], 3, 1e-9);
  // What goes on side by side is on tracks of its own; what has not ended is left out.
  EXPECT_EQ(trace.slices_of(1, "world").size(), 1u);
  EXPECT_EQ(trace.slices_of(1, "world (2)").size(), 1u);

  ASSERT_EQ(trace.flow_starts.size(), 1u);
  const json& start = trace.flow_starts.begin()->second;
  EXPECT_EQ(start["pid"], 0);
  EXPECT_EQ(start["ts"], 5000);
  EXPECT_EQ(trace.track_names.at({0, start["tid"]}), "turned send, lane 1");
  const json& end = trace.flow_ends.begin()->second;
  EXPECT_EQ(end["pid"], 1);
  EXPECT_EQ(trace.track_names.at({1, end["tid"]}), "turned recv, lane 1");
}

TEST(TraceFile, HasNoArrowWithoutBothEnds) {
  RankRecords lonely = sender();
  std::stringstream text;
  comm::write_trace(text, {&lonely, 1});
  EXPECT_TRUE(check_trace(text.str()).flow_starts.empty());
}

TEST(TraceFile, OfNothingIsValid) {
  const std::vector<RankRecords> ranks(1);
  std::stringstream text;
  comm::write_trace(text, ranks);
  EXPECT_TRUE(check_trace(text.str()).slices.empty());
  EXPECT_TRUE(log_lines(ranks).empty());
}

}  // namespace
}  // namespace sixfold::test
