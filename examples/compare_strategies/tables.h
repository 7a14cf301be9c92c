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
};

/// Step time, speed, communication, memory, loss and checks of each strategy. MB are 10^6 bytes.
Table cost_table(const Comparison& comparison);
/// Primitives with their calls, volume and the link that suits each axis by the first profile.
Table strategy_table(const Comparison& comparison);
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
std::vector<std::string> check_sentences(const Comparison& comparison);
/// What was left out of the default list, one sentence a line.
std::vector<std::string> left_out_sentences(const ComparisonPlan& plan);

/// All of it.
void print_comparison(std::ostream& out, const Comparison& comparison, const ComparisonPlan& plan);

/// "dp 2 x tp 2"; "one rank".
std::string mesh_text(const parallel::MeshShape& mesh);
std::string fixed(double value, int decimals);

}  // namespace sixfold::compare_strategies
