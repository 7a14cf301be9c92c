// The timelines of a comparison as HTML (charts.h says how drawings and text share the work). Pure.
#pragma once

#include <string>

#include "examples/compare_strategies/comparison.h"

namespace sixfold::compare_strategies {

/// A legend, and for each strategy a strip a rank: what it does on top, whose messages move below. All on one time
/// scale, so that longer steps are longer. Each strip's element has data-label, data-rank and, for each kind,
/// data-KIND with the sum of its milliseconds.
std::string timelines_html(const Comparison& comparison);

}  // namespace sixfold::compare_strategies
