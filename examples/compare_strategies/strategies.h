// Strategies as text: what --strategies takes, and the list that is compared by default. Pure.
//
//   list      = strategy { "," strategy }
//   strategy  = part { "+" part }
//   part      = mesh | word                                each at most once
//   mesh      = axis number { "x" axis number }            axis: pp, dp, sp (Ulysses), tp
//   word      = "one"                                      one rank alone, whatever the others are; no other part
//             | "ddp" | "zero1" | "zero2" | "zero3"        what data-parallel ranks share out; ddp where none is named
//             | "hsdp"                                     zero2 or zero3 (the latter by itself) within each node
//             | "megatron"                                 tp ranks share out positions between layers, too
//             | "gpipe" | "1f1b" | "interleaved"           pp alone; 1f1b where none is named
//             | "recompute" | "no-overlap"
//             | "m" number                                 micro-batches of a step
//
// Blanks around strategies and parts do not count. Ranks that the mesh leaves are data parallel: on 8 ranks, "tp2" is
// "dp4xtp2" and "zero1" is "dp8+zero1".
#pragma once

#include <string>
#include <vector>

#include "examples/train_gpt/options.h"
#include "runtime/parallel/mesh.h"
#include "runtime/parallel/pipeline_schedule.h"

namespace sixfold::compare_strategies {

struct StrategySpec {
  std::string name;  // the text, without blanks
  bool one_rank = false;
  parallel::MeshShape mesh;  // dp 0: what is left
  int zero = 0;
  bool hsdp = false;
  bool megatron = false;
  bool recompute = false;
  bool overlap = true;
  parallel::PipelineKind schedule = parallel::PipelineKind::OneFOneB;
  int micro_batches = 0;  // 0: see options_of()
};

/// As often as they are named. Throws ConfigError that names --strategies, the strategy, the part, and what is allowed
/// in its place.
std::vector<StrategySpec> parse_strategies(const std::string& list);

/// Names of what is worth comparing on so many ranks: one rank, data parallelism with and without overlap, ZeRO, HSDP,
/// tensor and sequence parallelism, pipelines, mixes of two axes and, from 8 ranks on, of three. Some may not fit the
/// model or the nodes.
std::vector<std::string> default_strategies(int num_ranks);

/// The options of a run of `spec` on `num_ranks` ranks: `base`, which names data, model and world, with the strategy's
/// own. Throws ConfigError that names the strategy. Micro-batches, where neither `spec` nor base.micro_batch says: one,
/// and with pp stages the most up to 2 pp that the rows of a rank make (a multiple of pp for interleaved).
train_gpt::Options options_of(const StrategySpec& spec, const train_gpt::Options& base, int num_ranks);

/// What train_gpt says of options_of(spec, ..) in the words of strategies: "pp4" for "--pp 4". Flags that
/// compare_strategies has, too, stay.
std::string in_words_of_strategies(const StrategySpec& spec, const train_gpt::Options& options,
                                   const std::string& message);

}  // namespace sixfold::compare_strategies
