#include "examples/compare_strategies/checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace sixfold::compare_strategies {

namespace {

double median_loss(const std::vector<StrategyRecord>& records, size_t step) {
  std::vector<double> losses;
  for (const StrategyRecord& record : records) losses.push_back(record.losses.at(step));
  std::erase_if(losses, [](double loss) { return !std::isfinite(loss); });
  return losses.empty() ? std::nan("") : median(std::move(losses));
}

/// Of `loss` from `others`; infinite where either is not finite.
double relative_distance(double loss, double others) {
  const double distance = std::abs(loss - others) / std::abs(others);
  return std::isfinite(distance) ? distance : std::numeric_limits<double>::infinity();
}

bool is_equal(double counted, double formula) {
  return std::abs(counted - formula) <= kBytesTolerance * std::max(counted, formula);
}

std::string both(const std::string& what, double measured, double formula) {
  char text[200];
  std::snprintf(text, sizeof(text), "%s: %.0f, formula %.0f bytes", what.c_str(), measured, formula);
  return text;
}

/// Whether all of a tag's operations ran as the strategy's formula reckons.
bool is_reckoned_with(const StrategyRecord& record, const std::string& tag) {
  return std::all_of(record.comm.begin(), record.comm.end(), [&](const CommEntry& entry) {
    if (entry.tag != tag) return true;
    const bool known = entry.algorithm == "ring" || entry.algorithm == "direct" || entry.algorithm == "pairwise" ||
                       entry.algorithm == "spread_out" || entry.primitive == "send";
    return known && entry.sent_bytes.has_value();
  });
}

}  // namespace

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

bool counts_links(const std::vector<StrategyRecord>& records) {
  return std::all_of(records.begin(), records.end(), [](const auto& record) { return record.counts_links(); });
}

std::vector<LossDifference> differing_losses(const std::vector<StrategyRecord>& records, double tolerance) {
  std::vector<LossDifference> differences;
  for (const StrategyRecord& record : records) {
    for (size_t step = 0; step < record.losses.size(); ++step) {
      const double others = median_loss(records, step), loss = record.losses[step];
      if (relative_distance(loss, others) <= tolerance) continue;
      differences.push_back({record.name, static_cast<int>(step) + 1, loss, others});
      break;
    }
  }
  return differences;
}

double largest_loss_distance(const std::vector<StrategyRecord>& records) {
  double largest = 0;
  for (const StrategyRecord& record : records) {
    for (size_t step = 0; step < record.losses.size(); ++step) {
      largest = std::max(largest, relative_distance(record.losses[step], median_loss(records, step)));
    }
  }
  return largest;
}

std::vector<std::string> differing_bytes(const StrategyRecord& record) {
  std::vector<std::string> texts;
  for (const CommEntry& entry : record.comm) {
    if (!entry.sent_bytes || is_equal(*entry.sent_bytes, *entry.formula_bytes)) continue;
    texts.push_back(both(entry.tag + " by " + entry.algorithm, *entry.sent_bytes, *entry.formula_bytes));
  }
  for (const TrafficEntry& entry : record.traffic) {
    if (!is_reckoned_with(record, entry.tag) || is_equal(entry.sent_bytes, entry.predicted_bytes)) continue;
    texts.push_back(both(entry.tag, entry.sent_bytes, entry.predicted_bytes));
  }
  return texts;
}

std::vector<std::string> differing_memory(const StrategyRecord& record) {
  std::vector<std::string> texts;
  for (const MemoryEntry& entry : record.memory) {
    if (!entry.predicted_bytes || entry.worst <= kMemoryTolerance) continue;
    texts.push_back(both(entry.category, entry.peak_bytes, *entry.predicted_bytes));
  }
  return texts;
}

}  // namespace sixfold::compare_strategies
