#include "examples/compare_strategies/options.h"

#include "examples/common/option_group.h"
#include "examples/train_gpt/option_groups.h"

namespace sixfold::compare_strategies {

namespace {

CompareOptions defaults() {
  CompareOptions options;
  options.base.steps = 10;
  options.base.warmup = 2;
  options.base.global_batch = 16;  // divides over 16 ranks, and makes micro-batches for pipelines
  return options;
}

void add_comparison(CLI::App& app, CompareOptions& o) {
  examples::OptionGroup group(app, "Comparison");
  group.text("--strategies", o.strategies, "LIST",
             "Such as one,dp2xtp2+zero1,pp2xdp2+1f1b: meshes of pp, dp, sp, tp; one, ddp, zero1|2|3, hsdp, megatron, "
             "gpipe|1f1b|interleaved, recompute, no-overlap, mN (default: all that fit the ranks)");
  group.text("--profile", o.profile, "NAME|FILE",
             "Say what each axis would cost on this hardware, and which belongs inside a node: a100-hdr, h100-ndr or a "
             "file (default: none)");
  group.path("--json", o.json, "Write all numbers as JSON (default: none)");
  group.path("--html", o.html, "Write a page with charts, which needs nothing else (default: none)");
  group.flag("--markdown", o.markdown, "Print the tables as Markdown");
}

}  // namespace

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    if (speaks) app.exit(help);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string(error.what()) + " (--help lists the options)");
  }
  return options;
}

}  // namespace sixfold::compare_strategies
