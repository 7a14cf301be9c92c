// train_gpt: trains a GPT on text or tokens, on one rank or many. `train_gpt --help` lists the options.
//
//   build/train_gpt                        one rank
//   build/train_gpt --ranks 2              two ranks, as threads of this process
//   mpirun -n 2 build/train_gpt            two ranks, as processes
//
// Exit codes: 0 done, 1 the run failed, 2 the user asked for something impossible.
#include "examples/common/exit_code.h"
#include "examples/train_gpt/announce.h"
#include "examples/train_gpt/options.h"
#include "examples/train_gpt/plan.h"
#include "examples/train_gpt/run.h"
#include "examples/train_gpt/run_data.h"
#include "runtime/core/env.h"
#include "runtime/core/log.h"

using namespace sixfold;

int main(int argc, char** argv) {
  const Environment environment = read_environment();
  const bool speaks = environment.launcher_rank.value_or(0) == 0;
  return examples::exit_code_of("train_gpt", speaks, [&] {
    set_log_level(environment.log_level);
    const auto options = train_gpt::parse_options(argc, argv, speaks);
    if (!options) return 0;
    const train_gpt::Plan plan = train_gpt::make_plan(*options);
    const train_gpt::RunData data = train_gpt::load_data(plan);
    if (speaks && data.corpus.num_skipped > 0) {
      log_info("--data " + options->data + ": " + std::to_string(data.corpus.num_skipped) +
               " files skipped, which are no text (a NUL byte)");
    }
    if (speaks && plan.ranks_on_host * plan.num_threads > plan.num_cores) {
      log_warn(std::to_string(plan.ranks_on_host) + " ranks x " + std::to_string(plan.num_threads) + " threads on " +
               std::to_string(plan.num_cores) + " cores: they take turns, which is slow");
    }
    comm::run_world(plan.world, [&](comm::World& world) {
      if (world.rank() == 0) train_gpt::announce(plan, world.topology());
      train_gpt::run_rank(world, world.group(), plan, data.text);
    });
    return 0;
  });
}
