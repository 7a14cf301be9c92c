// A comparison as one JSON object: what --json writes and what the page of --html carries.
//
//   {"ranks": "4 ranks (threads)", "nodes": "1 node: 0 1 2 3", "threads_per_rank",
//    "model": {"layers","dim","heads","seq_len","vocabulary","parameters"}, "data", "global_batch", "steps", "seed",
//    "emulate_links": text | null,
//    "checks": {"losses_equal","largest_loss_distance","loss_tolerance","differing_losses":
//                 [{"strategy","step","loss","others"}], "bytes_equal": true | false |
//                 null,"memory_within","memory_tolerance"},
//    "strategies": [{
//       "name","pp","dp","sp","tp","ranks","micro_batches",
//       "step_ms","tokens_per_s","exposed_ms","late_ms","comm_ms","exposed_share","overlap_share","counted_steps",
//       "steps": [{"loss","ms"}], "loss",
//       "by_primitive": [{"primitive","calls","sent_bytes","sent_inter_bytes"}],
//       "calls","sent_bytes","sent_inter_bytes", "comm":
//       [{"tag","axis","primitive","algorithm","backend","group_size","calls","bytes","sent_bytes",
//                 "sent_inter_bytes","formula_bytes","ms","exposed_ms","late_ms"}],
//       "traffic": [{"tag","sent_bytes","predicted_bytes"}], "differing_bytes": [text],
//       "memory": [{"category","peak_bytes","predicted_bytes","worst"}], "peak_bytes", "differing_memory": [text],
//       "verdicts": [{"profile","compute_ms","text","axes":
//           [{"axis","group_size","messages","sent_mb","largest_mb","critical_mb","critical_share",
//             "link": "node" | "either" | "network", "inside": {"all_ms","critical_ms","waited_ms"}, "across": {..},
//             "penalty_ms","measured_exposed_ms"}]}],
//       "timeline": {"step","ranks": [{"rank","start_ms","end_ms","tracks": {KIND: [[start_ms,end_ms],..],..}}]}}],
//    "left_out": [{"strategy","reason"}],
//    "placements": [{"strategy","verdict","agrees": true | false | null,
//        "runs": [{"inside","across","step_ms","exposed_ms","exposed_quartiles": [lower,upper],"inside_exposed_ms",
//                  "across_exposed_ms"}]}],
//    "no_placements": why there are none | null}
//
// Figures of a step all follow one rule: of each step the mean of the ranks, of these the median over the steps that
// count, "counted_steps" of them: all but the first, where there are more. "comm" and "by_primitive" are of a step,
// too. Start-up and validation are in none of them. "steps" has every step; its "ms" is the mean of the ranks. Memory
// is that of the rank that has most (record.h says more of each, verdict.h of verdicts, comparison.h of placements).
//
// null: not known, or not finite. Not known where links are not counted (--comm mpi): sent_bytes, sent_inter_bytes,
// sent_mb, formula_bytes, late_ms, differing_bytes, bytes_equal; "traffic" is empty there. "agrees" is null where the
// two runs are too close to tell.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "examples/compare_strategies/comparison.h"

namespace sixfold::compare_strategies {

nlohmann::ordered_json json_of(const Comparison& comparison, const ComparisonPlan& plan);

/// Replaces the file at once or not at all: it is written as `path`.part first. Throws ConfigError that names `flag`
/// when it cannot be written; then nothing is left behind.
void write_file(const std::string& flag, const std::string& path, const std::string& text);

}  // namespace sixfold::compare_strategies
