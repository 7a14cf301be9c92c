// compare_strategies: trains the same model on the same data by one strategy after the other, and says what each costs.
//
//   build/compare_strategies --ranks 4
//   mpirun -n 4 build/compare_strategies --profile a100-hdr --html page.html
//
// Exit codes: 0 done, 1 a run failed or a strategy trained something else (its loss differs), 2 the user asked for
// something impossible.
#include <iostream>
#include <nlohmann/json.hpp>

#include "examples/common/exit_code.h"
#include "examples/compare_strategies/comparison.h"
#include "examples/compare_strategies/page.h"
#include "examples/compare_strategies/report_json.h"
#include "examples/compare_strategies/tables.h"
#include "examples/train_gpt/run_data.h"
#include "runtime/core/env.h"
#include "runtime/core/log.h"

namespace {

using namespace sixfold;
using namespace sixfold::compare_strategies;

/// On rank 0: prints, writes the files, and says whether all strategies trained the same.
bool report(const Comparison& comparison, const ComparisonPlan& plan) {
  print_comparison(std::cout, comparison, plan);
  const nlohmann::ordered_json json = json_of(comparison, plan);
  const CompareOptions& options = plan.options;
  if (!options.json.empty()) write_file("--json", options.json, json.dump(1) + "\n");
  if (!options.html.empty()) write_file("--html", options.html, page_html(comparison, plan, json));
  return comparison.differing().empty();
}

}  // namespace

int main(int argc, char** argv) {
  const Environment environment = read_environment();
  const bool speaks = environment.launcher_rank.value_or(0) == 0;
  return examples::exit_code_of("compare_strategies", speaks, [&] {
    set_log_level(environment.log_level);
    const auto options = parse_options(argc, argv, speaks);
    if (!options) return 0;
    const ComparisonPlan plan = make_comparison_plan(*options);
    const train_gpt::RunData data = train_gpt::load_data(plan.strategies.front().plan);
    bool all_equal = true;
    comm::run_world(plan.world, [&](comm::World& world) {
      const Comparison comparison = compare(world, plan, data.text);
      if (world.rank() == 0) all_equal = report(comparison, plan);
    });
    return all_equal ? 0 : examples::kFailed;
  });
}
