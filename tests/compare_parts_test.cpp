// compare_strategies' parts that need no ranks: how strategies are written, what counts as equal, which axis belongs
// inside a node. (compare_figures_test: figures of steps, timelines, placements.)
#include <gtest/gtest.h>

#include <cmath>

#include "examples/compare_strategies/charts.h"
#include "examples/compare_strategies/checks.h"
#include "examples/compare_strategies/comparison.h"
#include "examples/compare_strategies/options.h"
#include "examples/compare_strategies/strategies.h"
#include "examples/compare_strategies/tables.h"
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

TEST(Strategies, BlanksDoNotCount) {
  const auto list = parse_strategies(" one , dp2xtp2 + zero1 ");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, "one");
  EXPECT_EQ(list[1].name, "dp2xtp2+zero1");
  EXPECT_EQ(list[1].zero, 1);
}

// Sixteen rows and what a strategy needs of the model: 4 layers, 4 heads, 128 positions.
std::string why_not(const std::string& strategy, int num_ranks, train_gpt::Options base = {}) {
  base.global_batch = base.global_batch == 12 ? 16 : base.global_batch;
  base.ranks = num_ranks;
  try {
    plan_strategy(parse_strategies(strategy).at(0), base, num_ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "it fits";
}

TEST(Strategies, WhatDoesNotFitIsSaidInTheirWords) {
  const std::tuple<const char*, int, const char*> cases[] = {
      {"tp4", 2, "--strategies tp4: its mesh is of 4 ranks, which do not divide the 2 ranks (allowed: a mesh of 1, 2"},
      {"pp2xtp4", 4, "--strategies pp2xtp4: its mesh is of 8 ranks, which"},
      {"dp2xtp2", 8, "--strategies dp2xtp2: its mesh is of 4 ranks, and there are 8 (allowed: a mesh of 8 ranks; with"},
      {"tp5", 5, "--strategies tp5: --heads 4 is not cut by sp x tp = 5 (allowed: 1, 2, 4)"},
      {"pp5+gpipe", 5,
       "--strategies pp5+gpipe: --layers 4 with pp5: every stage needs a layer (allowed: --layers 5 or "},
      {"zero1", 5, "--strategies zero1: --global-batch 16 does not divide over dp = 5"},
      {"hsdp", 4, "--strategies hsdp: hsdp on 1 node: 0 1 2 3: allowed are two nodes or more"},
      {"pp4+interleaved", 4,
       "--strategies pp4+interleaved: --layers 4 with pp4 of 2 chunks: every stage needs a layer"},
      {"pp2+interleaved+m1", 2,
       "--strategies pp2+interleaved+m1: interleaved with 1 micro-batches a step on pp2: allow"},
      {"pp2+m3", 2, "--strategies pp2+m3: 16 rows of a rank do not make m3 (allowed: m with one of 1, 2, 4, 8, 16)"},
  };
  for (const auto& [strategy, num_ranks, begin] : cases) {
    const std::string message = why_not(strategy, num_ranks);
    EXPECT_EQ(message.substr(0, std::string(begin).size()), begin);
    for (const char* flag : {"--pp", "--dp", "--sp ", "--tp", "--zero", "--hsdp", "--virtual", "--sequence"}) {
      EXPECT_EQ(message.find(flag), std::string::npos) << message;
    }
  }
  EXPECT_EQ(why_not("tp4", 4), "it fits");
  // What no strategy could do is said as it is.
  train_gpt::Options odd_heads;
  odd_heads.heads = 3;
  EXPECT_EQ(why_not("zero1", 4, odd_heads).substr(0, 10), "--heads 3 ");
}

TEST(Strategies, TheSameRunHasManyNames) {
  train_gpt::Options base;
  base.global_batch = 16;
  base.ranks = 4;
  const auto same = [&](const char* a, const char* b) {
    const auto plan = [&](const char* text) { return plan_strategy(parse_strategies(text).at(0), base, 4); };
    return is_same_run(plan(a), plan(b));
  };
  EXPECT_TRUE(same("dp2xtp2", "tp2xdp2"));
  EXPECT_TRUE(same("dp2xtp2", "tp2"));
  EXPECT_TRUE(same("ddp", "dp4"));
  EXPECT_TRUE(same("pp4", "pp4+1f1b+m8"));
  EXPECT_FALSE(same("ddp", "one"));
  EXPECT_FALSE(same("ddp", "ddp+no-overlap"));
  EXPECT_FALSE(same("tp4", "tp4+megatron"));
  EXPECT_FALSE(same("pp4", "pp4+gpipe"));
  EXPECT_FALSE(same("pp4", "pp4+m4"));
}

TEST(Strategies, TheDefaultBatchDividesOverTheRanks) {
  const std::pair<int, int64_t> cases[] = {{1, 16}, {2, 16}, {3, 18}, {4, 16}, {5, 20}, {7, 21}, {16, 16}, {17, 17}};
  for (const auto& [num_ranks, batch] : cases) EXPECT_EQ(default_global_batch(num_ranks), batch) << num_ranks;
}

TEST(Strategies, RefusalsNameThePartAndWhatIsAllowed) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"zero4", {"--strategies zero4", "'zero4' is no part", "zero1, zero2, zero3"}},
      {"", {"a strategy is empty"}},
      {"ddp,", {"a strategy is empty"}},
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

TEST(Checks, ALossThatIsNotFiniteIsItsOwnStrategysAlone) {
  const double infinite = std::numeric_limits<double>::infinity();
  Comparison comparison;
  comparison.records = {with_losses("a", {5}), with_losses("b", {infinite}), with_losses("c", {5})};
  const auto sentences = check_sentences(comparison);
  ASSERT_GE(sentences.size(), 1u);
  EXPECT_EQ(sentences[0].text, "LOSS IS NOT FINITE: b at step 1");
  EXPECT_EQ(sentences[0].state, CheckSentence::State::Failed);
  EXPECT_EQ(comparison.differing().size(), 1u);
  comparison.records[1].losses = {5};
  EXPECT_EQ(check_sentences(comparison)[0].text.substr(0, 33), "losses of the one step are equal:");
  EXPECT_EQ(check_sentences(comparison)[0].state, CheckSentence::State::Passed);
}

TEST(Checks, WhatIsNotKnownIsNotChecked) {
  Comparison comparison;
  comparison.records = {with_losses("one", {5}), with_losses("ddp", {5})};
  CommEntry& entry = comparison.records[1].comm.emplace_back();
  entry.tag = "dp.grads";
  entry.primitive = "all_reduce";
  entry.backend = "mpi";
  entry.calls = 3;
  entry.sent_bytes = entry.sent_inter_bytes = entry.formula_bytes = entry.late_ms = std::nullopt;
  EXPECT_TRUE(differing_bytes(comparison.records[1]).empty());
  EXPECT_FALSE(comparison.records[1].all_primitives().sent_bytes.has_value());
  EXPECT_EQ(comparison.records[0].all_primitives().sent_bytes, 0);  // one rank alone sends nothing
  const auto sentences = check_sentences(comparison);
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_EQ(sentences[1].state, CheckSentence::State::NotChecked);
  EXPECT_EQ(sentences[1].text, "bytes in the links are not checked: --comm mpi counts no links");
}

TEST(Checks, BytesAndMemoryBesideTheFormulas) {
  StrategyRecord record;
  for (const auto& [tag, algorithm, bytes] : {std::tuple{"tp.loss", "direct", 100}, {"dp.grads", "tree", 300}}) {
    CommEntry& entry = record.comm.emplace_back();
    entry.tag = tag;
    entry.primitive = "all_reduce";
    entry.algorithm = algorithm;
    entry.sent_bytes = entry.formula_bytes = bytes;
  }
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
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.25), 1.75);
  EXPECT_EQ(quantile({7}, 0.75), 7);
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
  CommEntry entry;
  entry.tag = tag;
  entry.primitive = primitive;
  entry.algorithm = "ring";
  entry.backend = "own";
  entry.group_size = size;
  entry.calls = calls;
  entry.bytes = calls * bytes;
  return entry;
}

TEST(Verdict, CountsWhatTheNextComputationWaitsFor) {
  StrategyRecord record;
  record.mesh = {3, 2, 1, 2};
  record.micro_batches = 4;
  record.flops = 6e9;
  record.comm = {entry_of("dp.grads", "all_reduce", 2, 10, 2e6), entry_of("pp.activation", "send", 3, 8, 1e5),
                 entry_of("pp.activation", "recv", 3, 8, 1e5), entry_of("tp.attn_out", "all_reduce", 2, 4, 1e6),
                 entry_of("tp.attn_in.grad", "all_reduce", 2, 4, 1e6)};
  const Verdict verdict = judge(record, simple_profile());
  EXPECT_EQ(verdict.compute_ms, 6);
  ASSERT_EQ(verdict.axes.size(), 3u);
  const AxisCost &dp = verdict.axes[0], &tp = verdict.axes[1], &pp = verdict.axes[2];

  // Two ranks: a ring sends S, one MB of each MB. The last of 10 buckets waits, nine hide behind the backward of the
  // last of 4 micro-batches, which is 1 of the 6 ms.
  EXPECT_EQ(dp.axis, "dp");
  EXPECT_NEAR(dp.intra.all_ms, 20, 0.2);
  EXPECT_NEAR(dp.intra.critical_ms, 2, 0.02);
  EXPECT_NEAR(dp.intra.waited_ms, 2 + 18 - 1, 0.2);
  EXPECT_NEAR(dp.inter.waited_ms, 20 + 180 - 1, 2);
  // Forward's all-reduces wait, those of gradients hide behind 4 ms of backward.
  EXPECT_EQ(tp.axis, "tp");
  EXPECT_NEAR(tp.intra.waited_ms, 4, 0.04);
  EXPECT_NEAR(tp.inter.waited_ms, 40 + (40 - 4), 0.8);
  // p - 1 of m activations fill the pipeline, the others hide behind all that is computed.
  EXPECT_EQ(pp.axis, "pp");
  EXPECT_EQ(pp.messages, 8);
  EXPECT_NEAR(pp.intra.critical_ms, 0.2, 1e-9);
  EXPECT_NEAR(pp.inter.waited_ms, 2 + (6 - 6), 1e-9);
  EXPECT_EQ(verdict.text(), "dp inside the node; pp may cross first, then tp");
  EXPECT_EQ(links_text(verdict), "dp: node, tp: either, pp: network");

  record.overlap = false;
  EXPECT_NEAR(judge(record, simple_profile()).axes[0].intra.waited_ms, 20, 0.2);
  record.overlap = true;
  record.reduces_each_micro_batch = true;  // four last buckets, and all of backward for the others
  EXPECT_NEAR(judge(record, simple_profile()).axes[0].intra.waited_ms, 8 + 12 - 4, 0.2);
}

// ZeRO-1 moves a bucket as one piece for each rank: all pieces of the last bucket wait.
TEST(Verdict, ABucketOfPiecesWaitsAsOne) {
  StrategyRecord record;
  record.mesh = {1, 2, 1, 1};
  record.flops = 1e12;
  record.comm = {entry_of("zero1.grads", "reduce", 2, 10, 1e6), entry_of("zero1.params", "broadcast", 2, 10, 1e6)};
  const Verdict verdict = judge(record, simple_profile());
  EXPECT_NEAR(verdict.axes.at(0).intra.critical_ms, 2 + 2, 0.05);
  EXPECT_NEAR(verdict.axes.at(0).critical_share, 0.2, 1e-12);
}

// The verdict, the words of it and the suitable links come from the same order: they cannot contradict.
TEST(Verdict, LinksFollowTheVerdict) {
  StrategyRecord record;
  record.mesh = {1, 2, 1, 2};
  record.overlap = false;  // all messages are on the critical path, and yet one of two axes has to cross
  record.comm = {entry_of("dp.grads", "all_reduce", 2, 10, 1e6), entry_of("tp.mlp_out", "all_reduce", 2, 10, 8e6)};
  Verdict verdict = judge(record, simple_profile());
  EXPECT_EQ(verdict.text(), "tp inside the node; dp may cross");
  EXPECT_EQ(links_text(verdict), "tp: node, dp: network");
  // One axis alone is judged by what of it is on the critical path.
  record.comm.pop_back();
  verdict = judge(record, simple_profile());
  EXPECT_EQ(verdict.text(), "dp inside the node");
  EXPECT_EQ(links_text(verdict), "dp: node");
  record.overlap = true;
  verdict = judge(record, simple_profile());
  EXPECT_EQ(verdict.text(), "dp may cross");
  EXPECT_EQ(links_text(verdict), "dp: network");
  record.comm.clear();
  EXPECT_EQ(links_text(judge(record, simple_profile())), "-");
}

// Penalties of 18 ms (a bucket of 2 MB of which all but one hide) and of 18.9 ms (7 messages of 300 kB, all of them
// critical) are as good as equal: dp, of which 200 ms have to hide, belongs inside.
TEST(Verdict, WhereTwoLoseTheSameTheLongerMessagesBelongInside) {
  StrategyRecord record;
  record.mesh = {1, 2, 1, 2};
  record.flops = 1e12;
  record.comm = {entry_of("dp.grads", "all_reduce", 2, 10, 2e6), entry_of("tp.mlp_out", "all_reduce", 2, 7, 3e5)};
  EXPECT_EQ(judge(record, simple_profile()).text(), "dp inside the node; tp may cross");
  record.comm[1] = entry_of("tp.mlp_out", "all_reduce", 2, 8, 3e5);  // 21.6 ms: a fifth more
  EXPECT_EQ(judge(record, simple_profile()).text(), "tp inside the node; dp may cross");
}

TEST(Verdict, TensorParallelismBelongsInsideANode) {
  StrategyRecord record;
  record.mesh = {1, 2, 1, 2};
  record.flops = 1e14;  // long enough for nine of ten buckets to hide
  record.comm = {entry_of("dp.grads", "all_reduce", 2, 10, 25e6), entry_of("tp.mlp_out", "all_reduce", 2, 32, 8e6)};
  for (const char* name : {"a100-hdr", "h100-ndr"}) {
    const Verdict verdict = judge(record, comm::load_profile(name));
    EXPECT_EQ(verdict.text(), "tp inside the node; dp may cross") << name;
    EXPECT_EQ(links_text(verdict), "tp: node, dp: network") << name;
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
  EXPECT_EQ(verdict.text(), "sp inside the node; dp may cross");
  EXPECT_LT(verdict.axes[0].penalty_ms(), verdict.axes[1].penalty_ms());  // which has no say
}

TEST(Charts, TicksAreRoundAndReachTheLargest) {
  EXPECT_EQ(axis_ticks(4), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(axis_ticks(0.93), (std::vector<double>{0, 0.2, 0.4, 0.6, 0.8, 1}));
  EXPECT_EQ(axis_ticks(210), (std::vector<double>{0, 50, 100, 150, 200, 250}));
  EXPECT_EQ(axis_ticks(0), (std::vector<double>{0, 1}));
  EXPECT_EQ(escaped("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
}

}  // namespace
}  // namespace sixfold::compare_strategies
