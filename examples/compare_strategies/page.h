// The page of --html: charts, their tables and the JSON of the comparison in one file, which asks for nothing else from
// anywhere and runs no script. Colours follow the reader's choice of light or dark. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "examples/compare_strategies/comparison.h"

namespace sixfold::compare_strategies {

/// `json` is json_of(comparison, plan): embedded as <script type="application/json" id="data">, for programs.
std::string page_html(const Comparison& comparison, const ComparisonPlan& plan, const nlohmann::ordered_json& json);

}  // namespace sixfold::compare_strategies
