// compare_strategies' parts that need no ranks: how strategies are written, what counts as equal, which axis belongs
// inside a node.
#include <gtest/gtest.h>

#include <cmath>

#include "examples/compare_strategies/charts.h"
#include "examples/compare_strategies/checks.h"
#include "examples/compare_strategies/comparison.h"
#include "examples/compare_strategies/strategies.h"
#include "examples/compare_strategies/timeline.h"
#include "examples/compare_strategies/verdict.h"
#include "runtime/comm/observe/profile_file.h"
#include "runtime/core/error.h"

namespace sixfold::compare_strategies {
namespace {

TEST(Strategies, AreReadByTheirGrammar) {
  struct Case {
    const char* text;
    parallel::MeshShape mesh;  // on 8 ranks
    int zero;
    bool hsdp, megatron, overlap;
    const char* schedule;
    int64_t micro_batch;  // rows, of 16 in all
  };
  const Case cases[] = {
      {"ddp", {1, 8, 1, 1}, 0, false, false, true, "1f1b", 0},
      {"zero2+no-overlap", {1, 8, 1, 1}, 2, false, false, false, "1f1b", 0},
      {"hsdp", {1, 8, 1, 1}, 3, true, false, true, "1f1b", 0},
      {"zero2+hsdp", {1, 8, 1, 1}, 2, true, false, true, "1f1b", 0},
      {"tp2+megatron", {1, 4, 1, 2}, 0, false, true, true, "1f1b", 0},
      {"sp4", {1, 2, 4, 1}, 0, false, false, true, "1f1b", 0},
      {"pp2xdp2xtp2+zero1", {2, 2, 1, 2}, 1, false, false, true, "1f1b", 2},  // 8 rows a rank, m = 2 pp = 4
      {"tp2xpp4", {4, 1, 1, 2}, 0, false, false, true, "1f1b", 2},            // m = 8
      {"pp8+gpipe", {8, 1, 1, 1}, 0, false, false, true, "gpipe", 1},         // m = 16
      {"pp2xdp4+interleaved", {2, 4, 1, 1}, 0, false, false, true, "interleaved", 1},
      {"pp2xdp4+m2", {2, 4, 1, 1}, 0, false, false, true, "1f1b", 2},
      {"m2", {1, 8, 1, 1}, 0, false, false, true, "1f1b", 1},
  };
  train_gpt::Options base;
  base.global_batch = 16;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const train_gpt::Options options = options_of(parse_strategies(c.text).at(0), base, 8);
    EXPECT_EQ(options.pp, c.mesh.pp);
    EXPECT_EQ(options.dp, c.mesh.dp);
    EXPECT_EQ(options.sp, c.mesh.sp);
    EXPECT_EQ(options.tp, c.mesh.tp);
    EXPECT_EQ(options.zero, c.zero);
    EXPECT_EQ(options.hsdp, c.hsdp);
    EXPECT_EQ(options.sequence_parallel, c.megatron ? "megatron" : "none");
    EXPECT_EQ(options.no_overlap, !c.overlap);
    EXPECT_EQ(options.pp_schedule, c.schedule);
    EXPECT_EQ(options.micro_batch, c.micro_batch);
  }
  const auto list = parse_strategies("one,dp2xtp2+zero1,pp2xdp2+1f1b+recompute");
  ASSERT_EQ(list.size(), 3u);
  EXPECT_TRUE(list[0].one_rank);
  EXPECT_EQ(list[1].name, "dp2xtp2+zero1");
  EXPECT_TRUE(list[2].recompute);
}

TEST(Strategies, RefusalsNameThePartAndWhatIsAllowed) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"zero4", {"--strategies zero4", "'zero4' is no part", "zero1, zero2, zero3"}},
      {"", {"a strategy is empty"}},
      {"ddp,", {"a strategy is empty"}},
      {"ddp,ddp", {"ddp", "twice"}},
      {"ddp+", {"--strategies ddp+", "a part is empty", "no-overlap"}},
      {"ddp+zero1", {"'zero1' is one too many", "one of ddp, zero1"}},
      {"pp2+gpipe+1f1b", {"'1f1b' is one too many", "one of gpipe, 1f1b"}},
      {"tp2+dp2", {"'dp2' is one too many", "a mesh"}},
      {"m2+m4", {"'m4' is one too many", "a number of micro-batches"}},
      {"tp2xtp2", {"'tp2xtp2' names tp twice", "each axis once"}},
      {"dp2xqq2", {"'qq2' in 'dp2xqq2' is no axis", "pp, dp, sp or tp"}},
      {"tp0", {"'tp0' in 'tp0' is no number of ranks", "such as tp2"}},
      {"tp02", {"'tp02'"}},
      {"tp-2", {"'tp-2'"}},
      {"tp99999999999", {"'tp99999999999'"}},
      {"dp2x", {"'' in 'dp2x' is no axis"}},
      {"gpipe", {"'gpipe' needs stages", "pp2"}},
      {"dp4+megatron", {"'megatron' needs tensor-parallel ranks", "tp2"}},
      {"zero1+hsdp", {"'hsdp' shares out gradients", "zero2, zero3"}},
      {"one+zero1", {"'one' is one rank alone"}},
      {"m0", {"'m0' is no part"}},
  };
  for (const auto& [text, words] : cases) {
    SCOPED_TRACE(text);
    try {
      parse_strategies(text);
      ADD_FAILURE() << "not refused";
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
      EXPECT_NE(message.find("allowed"), std::string::npos) << message;
    }
  }
}

TEST(Strategies, TheDefaultListIsReadAndFitsTheRanks) {
  for (int num_ranks : {1, 2, 3, 4, 6, 8, 16}) {
    bool three_axes = false;
    for (const std::string& name : default_strategies(num_ranks)) {
      SCOPED_TRACE(name);
      const StrategySpec spec = parse_strategies(name).at(0);
      train_gpt::Options base;
      base.global_batch = 48;
      const train_gpt::Options options = options_of(spec, base, num_ranks);
      EXPECT_EQ(options.pp * options.dp * options.sp * options.tp, spec.one_rank ? 1 : num_ranks);
      three_axes |= options.pp > 1 && options.dp > 1 && options.tp > 1;
    }
    EXPECT_EQ(three_axes, num_ranks % 4 == 0 && num_ranks >= 8);
  }
}

StrategyRecord with_losses(const std::string& name, std::vector<double> losses) {
  StrategyRecord record;
  record.name = name;
  record.losses = std::move(losses);
  return record;
}

TEST(Checks, AWrongLossIsFoundAndNamed) {
  std::vector<StrategyRecord> records = {with_losses("a", {5, 4, 3}), with_losses("b", {5.00002, 4, 3}),
                                         with_losses("c", {5, 4.001, 2}), with_losses("d", {5, 4, 3})};
  EXPECT_TRUE(differing_losses({records[0], records[1], records[3]}, 1e-5).empty());
  const auto found = differing_losses(records, 1e-5);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].strategy, "c");
  EXPECT_EQ(found[0].step, 2);
  EXPECT_EQ(found[0].loss, 4.001);
  EXPECT_EQ(found[0].others, 4);
  EXPECT_NEAR(largest_loss_distance({records[0], records[2], records[3]}), 1.0 / 3, 1e-12);

  records[3].losses[0] = std::nan("");
  EXPECT_EQ(differing_losses(records, 1e-2).back().strategy, "d");
  EXPECT_EQ(differing_losses({records[0], records[2]}, 1e-5).size(), 2u);  // which of two is wrong, nobody knows
  EXPECT_EQ(differing_losses({records[3], records[3]}, 1e-5).size(), 2u);
}

TEST(Checks, BytesAndMemoryBesideTheFormulas) {
  StrategyRecord record;
  record.comm = {{"tp.loss", "all_reduce", "direct", "own", 2, 1, 8, 100, 0, 100, 1, 1},
                 {"dp.grads", "all_reduce", "tree", "own", 2, 1, 8, 300, 0, 300, 1, 1}};
  record.traffic = {{"tp.loss", 100, 100}, {"dp.grads", 300, 200}};
  EXPECT_TRUE(differing_bytes(record).empty());  // the strategy's formula is not about trees
  record.comm[1].algorithm = "ring";
  ASSERT_EQ(differing_bytes(record).size(), 1u);
  EXPECT_EQ(differing_bytes(record)[0], "dp.grads: 300, formula 200 bytes");
  record.comm[0].sent_bytes = 101;
  EXPECT_EQ(differing_bytes(record)[0], "tp.loss by direct: 101, formula 100 bytes");

  record.memory = {{"parameters", 102, 100, 0.02}, {"gradients", 103, 100, 0.03}, {"other", 9, std::nullopt, 0}};
  ASSERT_EQ(differing_memory(record).size(), 1u);
  EXPECT_EQ(differing_memory(record)[0], "gradients: 103, formula 100 bytes");
  EXPECT_EQ(median({4, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

// Messages without latency or reductions, so that times are bytes over rates: 1 MB a ms inside, 0.1 MB a ms across.
comm::Profile simple_profile() {
  comm::Profile profile = comm::load_profile("a100-hdr");
  profile.intra = {0, 1e9};
  profile.inter = {0, 1e8};
  profile.reduce_bytes_per_s = 1e15;
  profile.matmul_flops = 2e12;  // half of it is reached: 1 GFLOP takes a ms
  return profile;
}

CommEntry entry_of(const std::string& tag, const std::string& primitive, int size, double calls, double bytes) {
  CommEntry entry{tag, primitive, "ring", "own"};
  entry.group_size = size;
  entry.calls = calls;
  entry.bytes = calls * bytes;
  return entry;
}

TEST(Verdict, CountsWhatTheNextComputationWaitsFor) {
  StrategyRecord record;
  record.mesh = {3, 2, 1, 2};
  record.flops = 5e9;
  record.comm = {entry_of("dp.grads", "all_reduce", 2, 10, 2e6), entry_of("pp.activation", "send", 3, 8, 1e5),
                 entry_of("pp.activation", "recv", 3, 8, 1e5), entry_of("tp.attn_out", "all_reduce", 2, 4, 1e6),
                 entry_of("tp.attn_in.grad", "all_reduce", 2, 4, 1e6)};
  const Verdict verdict = judge(record, simple_profile());
  EXPECT_EQ(verdict.compute_ms, 5);
  ASSERT_EQ(verdict.axes.size(), 3u);
  const AxisCost &dp = verdict.axes[0], &tp = verdict.axes[1], &pp = verdict.axes[2];

  // Two ranks: a ring sends S, one MB of each MB. The last of 10 buckets waits, nine hide behind 5 ms.
  EXPECT_EQ(dp.axis, "dp");
  EXPECT_NEAR(dp.intra.all_ms, 20, 0.2);
  EXPECT_NEAR(dp.intra.critical_ms, 2, 0.02);
  EXPECT_NEAR(dp.intra.waited_ms, 2 + 18 - 5, 0.2);
  EXPECT_NEAR(dp.inter.waited_ms, 20 + 180 - 5, 2);
  // Forward's all-reduces wait, those of gradients hide.
  EXPECT_EQ(tp.axis, "tp");
  EXPECT_NEAR(tp.intra.waited_ms, 4, 0.04);
  EXPECT_NEAR(tp.inter.waited_ms, 40 + (40 - 5), 0.8);
  // p - 1 of m activations fill the pipeline.
  EXPECT_EQ(pp.axis, "pp");
  EXPECT_EQ(pp.messages, 8);
  EXPECT_NEAR(pp.intra.critical_ms, 0.2, 1e-9);
  EXPECT_NEAR(pp.inter.waited_ms, 2 + (6 - 5), 1e-9);
  EXPECT_EQ(verdict.text, "dp inside the node; pp may cross first, then tp");

  record.overlap = false;
  EXPECT_NEAR(judge(record, simple_profile()).axes[0].intra.waited_ms, 20, 0.2);
}

TEST(Verdict, TensorParallelismBelongsInsideANode) {
  StrategyRecord record;
  record.mesh = {1, 2, 1, 2};
  record.flops = 1e14;  // long enough for nine of ten buckets to hide
  record.comm = {entry_of("dp.grads", "all_reduce", 2, 10, 25e6), entry_of("tp.mlp_out", "all_reduce", 2, 32, 8e6)};
  for (const char* name : {"a100-hdr", "h100-ndr"}) {
    const Verdict verdict = judge(record, comm::load_profile(name));
    EXPECT_EQ(verdict.text, "tp inside the node; dp may cross") << name;
    EXPECT_TRUE(verdict.axes[0].needs_node()) << name;
    EXPECT_FALSE(verdict.axes[1].needs_node()) << name;
    EXPECT_NEAR(verdict.axes[1].critical_share, 0.1, 1e-12) << name;  // the last of ten buckets
    EXPECT_GT(verdict.axes[0].penalty_ms(), 3 * verdict.axes[1].penalty_ms()) << name;
  }
}

TEST(Verdict, GroupsOfDpAndSpLeaveTheNodeEitherWay) {
  StrategyRecord record;
  record.mesh = {1, 2, 2, 1};
  record.comm = {entry_of("dp.grads", "all_reduce", 4, 10, 25e6), entry_of("sp.qkv", "all_to_all", 2, 4, 1e4)};
  const Verdict verdict = judge(record, simple_profile());
  EXPECT_EQ(verdict.axes[1].axis, "dp x sp");
  EXPECT_EQ(verdict.text, "sp inside the node; dp may cross");
}

// Step 2 of a rank: forward 10.0 to 10.4, of which 10.1 to 10.2 stood still, 0.04 for a late rank; backward to 11.0;
// and an all-reduce that started at 10.5, for which all were there at 10.6, and that ended at 10.9.
TEST(Timeline, TellsComputeFromTransferAndFromLateRanks) {
  comm::RankRecords records;
  records.rows = {{"dp.grads", comm::Primitive::AllReduce, comm::Algorithm::Ring, "own", 2},
                  {"tp.loss", comm::Primitive::AllReduce, comm::Algorithm::Ring, "own", 1}};
  const auto operation = [&](int step, uint32_t row, double enqueued, double started, double ended, double wait) {
    comm::LoggedOperation& op = records.operations.emplace_back();
    op.step = step;
    op.row = row;
    op.enqueued_s = enqueued;
    op.started_s = started;
    op.ended_s = ended;
    op.wait_s = wait;
  };
  operation(1, 0, 8.0, 8.0, 9.0, 0);  // of the step before
  operation(2, 0, 10.45, 10.5, 10.9, 0.1);
  operation(2, 1, 10.2, 10.2, 10.3, 0);  // among one rank: nothing moves
  operation(2, 0, 12.0, 12.0, 12.5, 0);  // after the step has ended
  records.exposed = {{8.5, 9.0, 0, 0}, {10.1, 10.2, 0.04, 1}};
  using Kind = comm::ComputeSpan::Kind;
  records.spans = {{10.05, 10.1, 2, 0, 3, Kind::Forward},  // of a unit: within the action
                   {10.0, 10.4, 2, 0, -1, Kind::Forward},
                   {10.4, 11.0, 2, 0, -1, Kind::Backward},
                   {13.0, 13.5, 3, 0, -1, Kind::Forward}};
  const RankTimeline timeline = timeline_of(records, 2, 1.0, {1, 2, 1, 1});
  EXPECT_DOUBLE_EQ(timeline.start, 10.0);
  EXPECT_DOUBLE_EQ(timeline.end, 11.0);
  EXPECT_NEAR(timeline.seconds_of("forward"), 0.4, 1e-12);
  EXPECT_NEAR(timeline.seconds_of("backward"), 0.6, 1e-12);
  EXPECT_NEAR(timeline.seconds_of("late"), 0.04, 1e-12);
  EXPECT_NEAR(timeline.seconds_of("in the way"), 0.06, 1e-12);
  ASSERT_NE(timeline.track("dp"), nullptr);
  ASSERT_EQ(timeline.track("dp")->intervals.size(), 1u);
  EXPECT_DOUBLE_EQ(timeline.track("dp")->intervals[0].start, 10.6);
  EXPECT_DOUBLE_EQ(timeline.track("dp")->intervals[0].end, 10.9);
  EXPECT_EQ(timeline.track("tp"), nullptr);
}

TEST(Charts, TicksAreRoundAndReachTheLargest) {
  EXPECT_EQ(axis_ticks(4), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(axis_ticks(0.93), (std::vector<double>{0, 0.2, 0.4, 0.6, 0.8, 1}));
  EXPECT_EQ(axis_ticks(210), (std::vector<double>{0, 50, 100, 150, 200, 250}));
  EXPECT_EQ(axis_ticks(0), (std::vector<double>{0, 1}));
  EXPECT_EQ(escaped("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
}

// dp 2 x tp 2 on two nodes of two: neighbours differ in tp; the other way round in dp.
TEST(Placement, OneOfTwoAxesLiesInsideTheNodes) {
  const parallel::MeshShape mesh{1, 2, 1, 2};
  const auto topology = comm::Topology::parse("2x2", 4);
  EXPECT_EQ(ranks_in_order(mesh, RankOrder::Outermost), (std::vector<int>{0, 2, 1, 3}));
  const AxesByPlace usual = place_axes(mesh, ranks_in_order(mesh, RankOrder::Innermost), topology);
  EXPECT_EQ(usual.inside, std::vector<std::string>{"tp"});
  EXPECT_EQ(usual.across, std::vector<std::string>{"dp"});
  const AxesByPlace other = place_axes(mesh, ranks_in_order(mesh, RankOrder::Outermost), topology);
  EXPECT_EQ(other.inside, std::vector<std::string>{"dp"});
  EXPECT_EQ(other.across, std::vector<std::string>{"tp"});
  EXPECT_EQ(place_axes({1, 4, 1, 1}, {0, 1, 2, 3}, topology).across, std::vector<std::string>{"dp"});
}

}  // namespace
}  // namespace sixfold::compare_strategies
