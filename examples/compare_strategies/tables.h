// A comparison as tables, for terminals, for README files (Markdown) and for the page.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "examples/compare_strategies/comparison.h"

namespace sixfold::compare_strategies {

/// Cells of one table, with a first row of column names; the first `num_left` columns are text, the rest numbers.
struct Table {
  std::string title;
  std::vector<std::vector<std::string>> rows;
  size_t num_left = 1;
  std::string note = {};  // on how to read it, below it; the page says it in its own place
};

/// Step time, speed, communication, memory, loss and checks of each strategy. MB are 10^6 bytes.
Table cost_table(const Comparison& comparison);
/// Primitives with their calls, volume and the link that suits each axis by the verdict of the first profile.
Table strategy_table(const Comparison& comparison, const ComparisonPlan& plan);
/// Calls and MB sent by a rank in a step, by primitive.
Table primitive_table(const Comparison& comparison);
/// Peak MB by category.
Table memory_table(const Comparison& comparison);
/// Of each axis of each strategy, on the links of the profile with this index.
Table axis_table(const Comparison& comparison, size_t profile);
/// Of the step of the timelines.
Table timeline_table(const Comparison& comparison);
/// Both placements of strategies with two axes; no rows but the first where there are none.
Table placement_table(const Comparison& comparison);

/// What has been checked, one sentence a line: losses, bytes, memory.
struct CheckSentence {
  enum class State : uint8_t { Passed, Failed, NotChecked };
  State state = State::Passed;
  std::string text;
};
std::vector<CheckSentence> check_sentences(const Comparison& comparison);
/// What was left out of the list, placements that were not run, and steps that do not count; one sentence a line.
std::vector<std::string> left_out_sentences(const Comparison& comparison, const ComparisonPlan& plan);

/// How figures of a step come from steps and ranks: half a sentence.
inline constexpr const char* kStepRule = "median of the steps but the first, mean of the ranks";
/// When a verdict agrees with a measurement: a sentence.
inline constexpr const char* kAgreementRule =
    "A verdict agrees or disagrees where the quartiles of one run's steps lie above those of the other's.";
/// "agrees", "disagrees", "too close to tell (24.5 to 26.1 against 25.0 to 29.9 ms)".
std::string agreement_text(const Placement& placement);

/// All of it.
void print_comparison(std::ostream& out, const Comparison& comparison, const ComparisonPlan& plan);

/// "dp 2 x tp 2"; "one rank".
std::string mesh_text(const parallel::MeshShape& mesh);
std::string fixed(double value, int decimals);
/// "-" where it is not known.
std::string fixed(const std::optional<double>& value, int decimals);
/// The axes' links by the verdict: "tp: node, dp: network"; "-" without any.
std::string links_text(const Verdict& verdict);

}  // namespace sixfold::compare_strategies
