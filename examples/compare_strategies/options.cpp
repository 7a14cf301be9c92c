#include "examples/compare_strategies/options.h"

#include "examples/common/option_group.h"
#include "examples/train_gpt/option_groups.h"
#include "runtime/comm/observe/profile_file.h"

namespace sixfold::compare_strategies {

namespace {

constexpr int64_t kLeastBatch = 16;

CompareOptions defaults() {
  CompareOptions options;
  options.base.steps = 10;
  options.base.warmup = 2;
  return options;
}

std::string profile_names() {
  std::string names;
  for (const std::string& name : comm::builtin_profile_names()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

void add_comparison(CLI::App& app, CompareOptions& o) {
  examples::OptionGroup group(app, "Comparison");
  group.text("--strategies", o.strategies, "LIST",
             "Such as one,dp2xtp2+zero1,pp2xdp2+1f1b: meshes of pp, dp, sp, tp; one, ddp, zero1|2|3, hsdp, megatron, "
             "gpipe|1f1b|interleaved, recompute, no-overlap, mN (default: all that fit the ranks)");
  group.text("--profile", o.profile, "NAME|FILE",
             "Say what each axis would cost on this hardware, and which belongs inside a node: " + profile_names() +
                 " or a file (default: none)");
  group.path("--json", o.json, "Write all numbers as JSON (default: none)");
  group.path("--html", o.html, "Write a page with charts, which needs nothing else (default: none)");
  group.flag("--markdown", o.markdown, "Print the tables as Markdown");
}

}  // namespace

int64_t default_global_batch(int num_ranks) {
  return (kLeastBatch + num_ranks - 1) / num_ranks * num_ranks;
}

std::optional<CompareOptions> parse_options(int argc, const char* const* argv, bool speaks) {
  CompareOptions options = defaults();
  CLI::App app("Trains the same model by one strategy after the other and says what each costs.");
  app.get_formatter()->column_width(32);
  app.get_help_ptr()->group("Help");
  add_comparison(app, options);
  train_gpt::add_data(app, options.base);
  train_gpt::add_model(app, options.base);
  train_gpt::add_training(app, options.base);
  train_gpt::add_world(app, options.base);
  CLI::Option* batch = app.get_option("--global-batch");
  batch->default_str(std::to_string(kLeastBatch) + ", or the next multiple of the ranks");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    if (speaks) app.exit(help);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string(error.what()) + " (--help lists the options)");
  }
  options.has_global_batch = batch->count() > 0;
  return options;
}

}  // namespace sixfold::compare_strategies
