// Layouts drawn at random: each that train_gpt takes is the run of one rank and sends and keeps what the formulas say,
// on every rank; each that it cannot take is refused by name. Ranks are threads.
#include <algorithm>
#include <numeric>

#include "tests/plan_rig.h"
#include "tests/refusal.h"

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
  std::string more;  // options that do not change what is right
  double dropout = 0;

  int num_ranks() const { return pp * dp * sp * tp; }
  std::string model() const {
    return "--layers " + std::to_string(layers) + " --heads " + std::to_string(heads) + " --dim " +
           std::to_string(dim) + " --seq-len " + std::to_string(seq_len) + " --dropout " + std::to_string(dropout) +
           " --global-batch " + std::to_string(dp * m * micro_batch) +
           " --optimizer sgd --lr 0.05 --warmup 0 --clip 0.5 --steps 3 --threads 1";
  }
  std::string axes() const {
    std::string text = " --ranks " + std::to_string(num_ranks()) + " --dp " + std::to_string(dp) + " --sp " +
                       std::to_string(sp) + " --tp " + std::to_string(tp) + " --zero " + std::to_string(zero) +
                       " --micro-batch " + std::to_string(micro_batch);
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
  });
  return outcome;
}

/// Bytes of the last steps and peaks of a rank beside the formulas. The table of links has the steps of training.
void expect_predicted(PlanRig& rig) {
  const train_gpt::Predictions predicted = rig.predictions();
  const auto steps = static_cast<double>(rig.plan.options.steps);
  const bool rings = rig.plan.world.algorithm == comm::Algorithm::Ring;
  for (const parallel::TagTraffic& row : predicted.traffic) {
    if (row.tag == "dp.grads" && !rings) continue;  // the formula of a ring; buckets here are small
    EXPECT_NEAR(rig.sent_bytes(row.tag) / steps, row.payload_bytes + row.padding_bytes, 1e-6) << row.tag;
  }
  const parallel::MemoryPrediction& memory = predicted.memory;
  for (const auto& [category, bytes] :
       {std::pair{Category::Parameters, memory.parameters}, std::pair{Category::Gradients, memory.gradients},
        std::pair{Category::Optimizer, memory.optimizer},
        std::pair{Category::Activations, memory.activations.value_or(0)}}) {
    EXPECT_EQ(rig.world.memory().peak_bytes(category), static_cast<size_t>(bytes)) << category_name(category);
  }
}

TEST(Layouts, EveryOneIsTheRunOfOneRankAndAsPredicted) {
  Draw draw(7);
  for (int i = 0; i < 60 && !::testing::Test::HasFailure(); ++i) {
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
        },
        plan.world);
  }
}

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
  const int64_t rows = 2 * 64, channels = 32, heads = 4;
  const int64_t kept = 2 * rows * (16 * channels + 4 + heads) * 4;
  const auto peaks = [&](const std::string& schedule, int pp, int m) {
    const std::string p = std::to_string(pp);
    return activation_peaks("--heads 4 --dim 32 --seq-len 64 --micro-batch 2 --layers " + std::to_string(2 * pp) +
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
  const std::string wide = "--layers 2 --heads 8 --dim 64 --global-batch 4 ", narrow = "--layers 2 --heads 8 --dim 16 ";
  for (const std::string& model :
       {wide + "--seq-len 64 ", wide + "--seq-len 192 --micro-batch 1 ", narrow + "--seq-len 64 --global-batch 8 "}) {
    for (const std::string kept : {"", "--recompute ", "--no-overlap ", "--dropout 0.1 --recompute --no-overlap "}) {
      for (const std::string cut : {"--ranks 1", "--ranks 4 --tp 4", "--ranks 4 --tp 4 --sequence-parallel megatron",
                                    "--ranks 4 --sp 4", "--ranks 4 --pp 2 --tp 2 --sequence-parallel megatron"}) {
        activation_peaks(model + kept + cut);
      }
    }
  }
}

}  // namespace
}  // namespace sixfold::test
