// pipeline_bubble: a pipeline whose stages sleep in place of computing, so that its bubble can be seen on any machine:
// measured beside the formula.
//
//   build/pipeline_bubble --stages 4 --micro-batches 8
//   build/pipeline_bubble --stages 4 --micro-batches 8 --schedule interleaved --virtual-stages 2
//
// Ranks are threads; the engine, its messages and the schedule are those of training. Exit codes as train_gpt's.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "examples/common/option_group.h"
#include "runtime/comm/world.h"
#include "runtime/parallel/pipeline.h"
#include "runtime/parallel/pipeline_check.h"
#include "runtime/parallel/stage_strategy.h"
#include "runtime/train/scalar_sum.h"

namespace {

using namespace sixfold;

struct Options {
  parallel::PipelineShape shape{parallel::PipelineKind::OneFOneB, 4, 8, 1};
  std::string schedule = "1f1b";
  double forward_ms = 20, backward_ms = 40;
  int64_t activation_kib = 64;
  int steps = 3;
};

/// A layer without parameters that takes a given time. The last one makes the loss: one number.
class Sleeper final : public parallel::Unit {
 public:
  Sleeper(int64_t index, double forward_ms, double backward_ms, int64_t in, int64_t out)
      : name_("layer." + std::to_string(index)),
        forward_ms_(forward_ms),
        backward_ms_(backward_ms),
        in_(in),
        out_(out) {}

  const std::string& name() const override { return name_; }
  std::vector<parallel::Parameter*> parameters() override { return {}; }
  Tensor forward(kernels::Context& context, const Tensor&, const parallel::MicroBatch&, parallel::Saved&) override {
    return sleep(context, forward_ms_, out_);
  }
  Tensor backward_input(kernels::Context& context, const Tensor&, const parallel::MicroBatch&,
                        parallel::Saved&) override {
    return sleep(context, backward_ms_, in_);
  }
  void backward_weights(kernels::Context&, const parallel::MicroBatch&, parallel::Saved&,
                        const parallel::GradientReady&) override {}

 private:
  /// Polls, as kernels do, so that transfers go on.
  static Tensor sleep(kernels::Context& context, double milliseconds, int64_t count) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double, std::milli>(milliseconds));
    while (Clock::now() < end) {
      if (context.between) context.between();
      std::this_thread::sleep_until(std::min(end, Clock::now() + std::chrono::milliseconds(1)));
    }
    return Tensor::zeros({count}, DType::F32, context.memory, Category::Activations);
  }

  std::string name_;
  double forward_ms_, backward_ms_;
  int64_t in_, out_;
};

/// First and last unit take no time; each chunk has one layer.
std::vector<std::unique_ptr<Sleeper>> make_model(const Options& options) {
  const int num_units = options.shape.num_chunks() + 2;
  const int64_t count = options.activation_kib * 1024 / 4;
  std::vector<std::unique_ptr<Sleeper>> model;
  for (int i = 0; i < num_units; ++i) {
    const bool works = i > 0 && i + 1 < num_units;
    const double share = works ? 1.0 / options.shape.virtual_stages : 0;
    model.push_back(std::make_unique<Sleeper>(i, share * options.forward_ms, share * options.backward_ms, count,
                                              i + 1 < num_units ? count : 1));
  }
  return model;
}

void run_rank(comm::World& world, const Options& options, const parallel::PipelineSchedule& schedule) {
  const parallel::PipelineShape& shape = options.shape;
  const auto model = make_model(options);
  parallel::UnitList list;
  for (const auto& unit : model) list.push_back(unit.get());
  kernels::Context context{world.memory(), 1};
  context.between = [&] { world.progress(); };
  parallel::StageUnits units(list, world.rank(), shape.num_stages, shape.virtual_stages);
  comm::Communicator alone = world.group().split(world.rank(), 0);
  parallel::StageStrategy strategy(units, world.memory(), world.group(), alone, {});
  parallel::Pipeline pipeline({&world.group(), units.chunks(), strategy, context, context.between});
  int32_t token = 0;
  parallel::MicroBatch batch;
  batch.tokens = batch.targets = Tensor::view(&token, {1}, DType::I32);
  const std::vector<parallel::MicroBatch> batches(static_cast<size_t>(shape.num_micro_batches), batch);
  for (int step = 1; step <= options.steps; ++step) {
    world.group().barrier();
    strategy.begin_step(shape.num_micro_batches);
    const auto start = std::chrono::steady_clock::now();
    const parallel::PipelineRun run =
        pipeline.run(schedule[static_cast<size_t>(world.rank())], batches, [] { return Tensor(); });
    strategy.finish_gradients();
    world.group().barrier();  // the step ends when the last stage is done
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double work = train::sum_over_ranks(world.memory(), world.group(), run.compute_seconds, "compute");
    if (world.rank() > 0) continue;
    std::printf("step %d: %.1f ms, bubble %.1f%%\n", step, 1e3 * seconds,
                100 * (1 - work / (seconds * shape.num_stages)));
  }
}

std::optional<Options> parse(int argc, const char* const* argv) {
  Options options;
  CLI::App app("Shows the bubble of a pipeline whose stages sleep in place of computing.");
  examples::OptionGroup group(app, "Pipeline");
  group.whole("--stages", options.shape.num_stages, 2, "Stages, as threads of this process");
  group.whole("--micro-batches", options.shape.num_micro_batches, 1, "Micro-batches of a step");
  group.choice("--schedule", options.schedule, {"gpipe", "1f1b", "interleaved"}, "Order of forwards and backwards");
  group.whole("--virtual-stages", options.shape.virtual_stages, 1, "Parts of the model on each stage (interleaved)");
  group.real("--forward-ms", options.forward_ms, 0.0, 1e6, "0 to 1000000", "What a stage's forward takes");
  group.real("--backward-ms", options.backward_ms, 0.0, 1e6, "0 to 1000000", "What a stage's backward takes");
  group.whole<int64_t>("--activation-kib", options.activation_kib, 1, "KiB that travel with each micro-batch");
  group.whole("--steps", options.steps, 1, "Steps to run");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string(error.what()) + " (--help lists the options)");
  }
  options.shape.kind = parallel::parse_pipeline_kind(options.schedule);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Options> options = parse(argc, argv);
    if (!options) return 0;
    const parallel::PipelineSchedule schedule = parallel::pipeline_schedule(options->shape);
    std::printf("%s", parallel::draw_schedule(options->shape, schedule).c_str());
    comm::WorldOptions world;
    world.num_ranks = options->shape.num_stages;
    comm::run_world(world, [&](comm::World& rank) { run_rank(rank, *options, schedule); });
    return 0;
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "pipeline_bubble: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline_bubble: %s\n", error.what());
    return 1;
  }
}
