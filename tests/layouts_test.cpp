// Layouts drawn at random: each that train_gpt takes is the run of one rank and sends and keeps what the formulas say,
// on every rank; each that it cannot take is refused by name. Ranks are threads.
#include <algorithm>
#include <numeric>

#include "tests/plan_rig.h"
#include "tests/refusal.h"
#include "tests/sanitized.h"

namespace sixfold::test {
namespace {

/// Draws from a fixed sequence of numbers.
class Draw {
 public:
  explicit Draw(uint64_t key) : key_(key) {}
  /// From 0 to n - 1.
  int below(int n) { return static_cast<int>(philox_hash(key_, ++count_) % static_cast<uint64_t>(n)); }
  int from(int first, int last) { return first + below(last - first + 1); }
  template <typename T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int>(choices.size())))];
  }
  bool coin() { return below(2) == 1; }

 private:
  uint64_t key_, count_ = 0;
};

/// Axes, and a model and batch that they cut.
struct Layout {
  int pp = 1, dp = 1, sp = 1, tp = 1;
  bool megatron = false;
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  int zero = 0;
  int m = 1, micro_batch = 1;  // micro-batches a step; rows
  int layers = 1, heads = 1, dim = 2, seq_len = 1;
  int global_batch = 0, ranks = 0;  // 0: what follows from the others
  std::string more;                 // options that do not change what is right
  double dropout = 0;

  int num_ranks() const { return pp * dp * sp * tp; }
  std::string model() const {
    return "--layers " + std::to_string(layers) + " --heads " + std::to_string(heads) + " --dim " +
           std::to_string(dim) + " --seq-len " + std::to_string(seq_len) + " --dropout " + std::to_string(dropout) +
           " --global-batch " + std::to_string(global_batch > 0 ? global_batch : dp * m * micro_batch) +
           " --optimizer sgd --lr 0.05 --warmup 0 --clip 0.5 --steps 3 --threads 1";
  }
  std::string axes() const {
    std::string text = " --ranks " + std::to_string(ranks > 0 ? ranks : num_ranks()) + " --dp " + std::to_string(dp) +
                       " --sp " + std::to_string(sp) + " --tp " + std::to_string(tp) + " --zero " +
                       std::to_string(zero) + " --micro-batch " + std::to_string(micro_batch);
    if (pp > 1) text += " --pp " + std::to_string(pp) + " --pp-schedule " + schedule;
    if (schedule == "interleaved") text += " --virtual-stages " + std::to_string(virtual_stages);
    if (megatron) text += " --sequence-parallel megatron";
    return text;
  }
  std::string options() const { return model() + axes() + more; }
};

Layout draw_layout(Draw& draw) {
  Layout l;
  do {
    l.pp = draw.from(1, 4);
    l.dp = draw.from(1, 4);
    l.sp = draw.from(1, 4);
    l.tp = draw.from(1, 4);
  } while (l.num_ranks() < 2 || l.num_ranks() > 8);
  l.megatron = l.tp > 1 && draw.coin();
  l.zero = draw.below(4);
  l.m = draw.from(1, 5);
  if (l.pp > 1) l.schedule = draw.one_of<std::string>({"gpipe", "1f1b", "interleaved"});
  if (l.schedule == "interleaved") {
    l.virtual_stages = draw.from(2, 3);
    l.m = l.pp * draw.from(1, 2);
  }
  l.micro_batch = draw.from(1, 3);
  l.layers = l.pp * l.virtual_stages + draw.below(3);
  l.heads = l.sp * l.tp * draw.from(1, 2);
  l.dim = l.heads * std::max(draw.from(2, 4), (8 + l.heads - 1) / l.heads);  // norms of few channels cancel
  l.seq_len = l.sp * (l.megatron ? l.tp : 1) * draw.from(2, 4);
  l.dropout = draw.coin() ? 0.1 : 0;
  if (draw.coin()) l.more += " --algorithm ring";
  if (draw.below(3) == 0) l.more += " --no-overlap";
  if (draw.below(3) == 0) l.more += " --recompute";
  if (draw.below(3) == 0) l.more += " --check-replicas 2";
  if (l.zero == 3) l.more += " --prefetch " + std::to_string(draw.below(3));
  if (l.zero < 3) l.more += draw.one_of<std::string>({" --bucket-mb 0", " --bucket-mb 0.004", " --bucket-mb 1"});
  return l;
}

/// The same batch in one micro-batch on one rank.
RunOutcome run_of_one_rank(const Layout& layout) {
  RunOutcome outcome;
  const train_gpt::Plan plan = plan_of(layout.model() + " --ranks 1");
  run_ranks(1, [&](comm::World& world) {
    PlanRig rig(world, plan);
    outcome = run_rig(rig);
    outcome.sampled = rig.sample();
  });
  return outcome;
}

TEST(Layouts, EveryOneIsTheRunOfOneRankAndAsPredicted) {
  Draw draw(7);
  for (int i = 0; i < (kSanitized ? 8 : 60) && !::testing::Test::HasFailure(); ++i) {
    const Layout layout = draw_layout(draw);
    const RunOutcome reference = run_of_one_rank(layout);
    const train_gpt::Plan plan = plan_of(layout.options());
    run_ranks(
        layout.num_ranks(),
        [&](comm::World& world) {
          SCOPED_TRACE(std::to_string(i) + ": " + layout.options() + ", rank " + std::to_string(world.rank()));
          PlanRig rig(world, plan);
          world.comm_table().reset();
          const RunOutcome outcome = run_rig(rig);
          rig.strategy.settle();
          expect_same_outcome(outcome, reference, layout.dim);
          expect_predicted(rig);
          EXPECT_EQ(rig.sample(), reference.sampled);
        },
        plan.world);
  }
}

// ---- What cannot be ------------------------------------------------------------------------------------------------

/// "1, 2, 3, 6" of 6.
std::string divisors(int number) {
  std::string text;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) text += (d > 1 ? ", " : "") + std::to_string(d);
  }
  return text;
}

struct Illegal {
  std::string options;
  std::vector<std::string> words;  // the flag, with its value where it has one, and what is allowed
};

/// A legal layout with one thing wrong: the `kind`-th that can be. `l` has several ranks of every axis that it needs.
Illegal spoil(Layout l, int kind, Draw& draw) {
  const auto text = [](int value) { return std::to_string(value); };
  l.more = "";
  switch (kind) {
    case 0:  // heads that do not divide over sp x tp
      l.sp = 2, l.tp = draw.from(2, 4), l.heads = 2 * l.tp + 1, l.dim = 4 * l.heads, l.seq_len = 2 * l.tp;
      return {l.options(), {"--heads " + text(l.heads), "sp x tp = " + text(2 * l.tp), divisors(l.heads)}};
    case 1:  // positions that do not divide over sp
      l.sp = draw.from(2, 3), l.tp = 1, l.megatron = false, l.seq_len = 2 * l.sp + 1, l.heads = l.sp, l.dim = 4 * l.sp;
      return {l.options(), {"--seq-len " + text(l.seq_len), "sp = " + text(l.sp), divisors(l.seq_len)}};
    case 2: {  // rows that do not divide over dp
      l.dp = draw.from(2, 4);
      const int below = l.dp * l.m * l.micro_batch;
      l.global_batch = below + 1;
      return {l.options(),
              {"--global-batch " + text(below + 1), "dp = " + text(l.dp), text(below) + " or " + text(below + l.dp)}};
    }
    case 3: {  // micro-batches that do not divide a rank's rows
      const int rows = l.m * l.micro_batch;
      l.global_batch = rows * l.dp, l.micro_batch = rows + 1;
      return {l.options(), {"--micro-batch " + text(rows + 1), divisors(rows)}};
    }
    case 4:  // fewer layers than stages
      l.pp = draw.from(2, 4), l.schedule = "gpipe", l.virtual_stages = 1, l.layers = l.pp - 1;
      return {l.options(),
              {"--layers " + text(l.layers), "--pp " + text(l.pp), "--layers " + text(l.pp) + " or more",
               "--pp 1 to " + text(l.layers)}};
    case 5:  // fewer layers than chunks
      l.pp = draw.from(2, 3), l.schedule = "interleaved", l.virtual_stages = 2, l.m = l.pp, l.layers = 2 * l.pp - 1;
      return {l.options(), {"--layers " + text(l.layers), "--virtual-stages 2", "--layers " + text(2 * l.pp)}};
    case 6:  // axes whose product is not the world
      l.ranks = l.num_ranks() + 1;
      return {l.options(), {"--dp " + text(l.dp), "--tp " + text(l.tp), "product is " + text(l.ranks), "--dp 0"}};
    case 7:  // micro-batches that the stages of an interleaved schedule do not divide
      l.pp = draw.from(2, 3), l.schedule = "interleaved", l.virtual_stages = 2, l.m = l.pp + 1, l.layers = 2 * l.pp;
      return {l.options(),
              {"--pp-schedule interleaved", text(l.m) + " micro-batches", "--pp " + text(l.pp),
               text(l.pp) + ", " + text(2 * l.pp) + ", " + text(3 * l.pp)}};
    case 8:  // positions of whom?
      l.tp = 1, l.megatron = true;
      return {l.options(), {"--sequence-parallel megatron", "--tp 2"}};
    case 9:  // heads that do not divide the channels
      l.dim = l.heads * 4 + 1;
      if (l.heads == 1) l.heads = 2, l.tp = l.sp = 1, l.megatron = false, l.dim = 9;
      return {l.options(), {"--heads " + text(l.heads), "--dim " + text(l.dim), divisors(l.dim)}};
    case 10:  // shards within nodes, of what DDP has whole; or within the only node
      l.zero = draw.from(0, 3);
      if (l.zero < 2) return {l.options() + " --hsdp", {"--hsdp", "--zero " + text(l.zero), "2, 3"}};
      return {l.options() + " --hsdp", {"--hsdp", "two nodes or more", "--topology"}};
    case 11:  // options that nothing would look at
      l.pp = 1, l.schedule = "1f1b", l.virtual_stages = 1, l.zero = draw.below(3);
      return {l.options() + " --prefetch 1", {"--prefetch 1", "--zero " + text(l.zero), "with --zero 3"}};
    case 12:
      l.zero = 3;
      return {l.options() + " --bucket-mb 2", {"--bucket-mb 2", "--zero 3", "--zero 0, 1, 2"}};
    case 13:
      l.pp = draw.from(2, 4), l.schedule = draw.one_of<std::string>({"gpipe", "1f1b"});
      return {l.options() + " --virtual-stages 1",
              {"--virtual-stages 1", "--pp-schedule " + l.schedule, "--pp-schedule interleaved"}};
    case 14:
      l.pp = 1, l.schedule = draw.one_of<std::string>({"gpipe", "1f1b"}), l.virtual_stages = 1;
      return {l.options() + " --pp-schedule " + l.schedule,
              {"--pp-schedule " + l.schedule, "--pp 1", "--pp 2 or more"}};
    default:  // rings do not add in rank order
      return {l.model() + l.axes() + " --algorithm ring --deterministic",
              {"--algorithm ring", "--deterministic", "direct"}};
  }
}

// What a rank has to do in a step where --micro-batch says nothing: rows of a rank, stages, micro-batches.
TEST(Layouts, MicroBatchesAreAsManyAsStagesUnlessTheUserSays) {
  const int cases[][3] = {{12, 1, 1}, {12, 2, 2}, {12, 4, 4}, {15, 4, 5}, {14, 3, 7}, {7, 2, 7}, {3, 4, 3}};
  for (const auto& [rows, stages, expected] : cases) {
    const std::string options = "--layers 4 --threads 1 --global-batch " + std::to_string(2 * rows) + " --dp 2 --pp " +
                                std::to_string(stages) + " --ranks " + std::to_string(2 * stages);
    EXPECT_EQ(plan_of(options).pipeline.num_micro_batches, expected) << options;
    EXPECT_EQ(plan_of(options + " --micro-batch 1").pipeline.num_micro_batches, rows);
  }
}

TEST(Layouts, WhatCannotBeIsRefusedByNameWithWhatIsAllowed) {
  Draw draw(11);
  for (int i = 0; i < 48; ++i) {
    const Illegal illegal = spoil(draw_layout(draw), i % 16, draw);
    SCOPED_TRACE(illegal.options);
    expect_mentions(refusal([&] { plan_of(illegal.options); }), illegal.words);
  }
}

// ---- Memory --------------------------------------------------------------------------------------------------------

/// Peak bytes of activations on each rank, and the formula's beside them, equal.
std::vector<size_t> activation_peaks(const std::string& options) {
  const train_gpt::Plan plan = plan_of("--threads 1 --steps 2 " + options);
  std::vector<size_t> peaks(static_cast<size_t>(plan.world.num_ranks));
  run_ranks(
      plan.world.num_ranks,
      [&](comm::World& world) {
        PlanRig rig(world, plan);
        for (int step = 0; step < 2; ++step) rig.trainer.step();
        const size_t peak = world.memory().peak_bytes(Category::Activations);
        EXPECT_EQ(peak, static_cast<size_t>(rig.predictions().memory.activations.value_or(0)))
            << options << ", rank " << world.rank();
        peaks[static_cast<size_t>(world.rank())] = peak;
      },
      plan.world);
  return peaks;
}

// Between its forward and its backward a micro-batch leaves, on a stage of two blocks, 16 C floats a token row and
// block, the statistics of two norms and the attention's log-sum-exp. gpipe has m of them, 1f1b p - stage.
TEST(Layouts, ActivationsGrowWithMicroBatchesForGPipeAndWithStagesForOneFOneB) {
  const int64_t rows = 2 * 16, channels = 16, heads = 4;
  const int64_t kept = 2 * rows * (16 * channels + 4 + heads) * 4;
  const auto peaks = [&](const std::string& schedule, int pp, int m) {
    const std::string p = std::to_string(pp);
    return activation_peaks("--heads 4 --dim 16 --seq-len 16 --micro-batch 2 --layers " + std::to_string(2 * pp) +
                            " --global-batch " + std::to_string(2 * m) + " --ranks " + p + " --pp " + p +
                            " --pp-schedule " + schedule);
  };
  const std::vector<size_t> gpipe = peaks("gpipe", 2, 2);
  EXPECT_EQ(peaks("gpipe", 2, 4)[0] - gpipe[0], 2 * kept);
  EXPECT_EQ(peaks("gpipe", 2, 8)[0] - gpipe[0], 6 * kept);
  const std::vector<size_t> two = peaks("1f1b", 2, 8), four = peaks("1f1b", 4, 8);
  EXPECT_EQ(peaks("1f1b", 2, 4)[0], two[0]);
  EXPECT_EQ(four[0] - two[0], 2 * kept);
  // In the middle there are lanes to both sides: two more tensors that travel.
  const int64_t travelling = rows * channels * 4;
  EXPECT_EQ(four[1] - two[0], kept + 2 * travelling);
  EXPECT_EQ(four[2], two[0] + 2 * travelling);
}

// Rows so many, and models so shaped, that each of the moments of predict.h is the largest somewhere.
TEST(Layouts, EveryMomentOfABackwardIsPredicted) {
  if (kSanitized) GTEST_SKIP() << "nothing that the others do not reach";
  const std::string wide = "--layers 2 --heads 8 --dim 64 --global-batch 4 ", narrow = "--layers 2 --heads 8 --dim 16 ";
  for (const std::string& model :
       {wide + "--seq-len 64 ", wide + "--seq-len 192 --micro-batch 1 ", narrow + "--seq-len 64 --global-batch 8 "}) {
    for (const std::string kept : {"", "--no-overlap ", "--dropout 0.1 --recompute "}) {
      for (const std::string cut : {"--ranks 1", "--ranks 4 --tp 4", "--ranks 4 --tp 4 --sequence-parallel megatron",
                                    "--ranks 4 --sp 4", "--ranks 4 --pp 2 --tp 2 --sequence-parallel megatron"}) {
        activation_peaks(model + kept + cut);
      }
    }
  }
}

}  // namespace
}  // namespace sixfold::test
