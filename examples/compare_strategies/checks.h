// What must hold of strategies that train the same model on the same data. Pure.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "examples/compare_strategies/record.h"

namespace sixfold::compare_strategies {

/// Strategies add in different orders, and AdamW turns rounding around zero into whole steps: relative to the loss.
inline constexpr double kLossTolerance = 1e-5;
inline constexpr double kMemoryTolerance = 0.02;
inline constexpr double kBytesTolerance = 1e-9;  // of sums of whole numbers in double: none but rounding

/// A strategy whose loss is not the others'.
struct LossDifference {
  std::string strategy;
  int step = 1;       // the first at which it differs
  double loss = 0;    // there
  double others = 0;  // the median of all strategies there of which it is finite; not finite where it is of none

  bool is_finite() const { return std::isfinite(loss); }
};
/// Compares each step's losses with their median; a loss that is not finite is one that no other equals. With two
/// strategies that disagree, both are named. The records have as many losses each.
std::vector<LossDifference> differing_losses(const std::vector<StrategyRecord>& records, double tolerance);
/// The largest relative distance of any loss from the median of its step.
double largest_loss_distance(const std::vector<StrategyRecord>& records);

/// Tags whose bytes in the links are not the formula's, as text with both numbers: by the algorithm's formula for every
/// tag, and by the strategy's where algorithms are those that it reckons with (ring, direct in two shots).
std::vector<std::string> differing_bytes(const StrategyRecord& record);

/// Categories whose measured peak is further from the formula than kMemoryTolerance on any rank, as text.
std::vector<std::string> differing_memory(const StrategyRecord& record);

/// Whether our own links carried and counted everything that was sent.
bool counts_links(const std::vector<StrategyRecord>& records);

/// The value below which this share (0 to 1) of the values lies, between two of them in proportion; 0 without values.
double quantile(std::vector<double> values, double share);
inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace sixfold::compare_strategies
