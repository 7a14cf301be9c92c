#include "examples/compare_strategies/step_figures.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace sixfold::compare_strategies {

namespace {

constexpr double kToMs = 1e3;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// The window with this moment in it.
std::optional<size_t> window_at(const std::vector<comm::Interval>& windows, double moment) {
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].start <= moment && moment < windows[i].end) return i;
  }
  return std::nullopt;
}

/// Place in `windows` of the step that issued the operation.
std::optional<size_t> step_of(const comm::LoggedOperation& operation, const std::vector<comm::Interval>& windows) {
  const auto step = static_cast<size_t>(operation.step) - 1;
  const bool is_within = operation.step > 0 && step < windows.size() && operation.enqueued_s >= windows[step].start &&
                         operation.enqueued_s <= windows[step].end;
  return is_within ? std::optional(step) : std::nullopt;
}

class Figures {
 public:
  Figures(const comm::RankRecords& records, const std::vector<comm::Interval>& windows)
      : records_(records), windows_(windows), by_row_(records.rows.size()) {
    for (const comm::LoggedOperation& operation : records.operations) add_operation(operation);
    add_standstill();
  }

  RankFigures take() {
    RankFigures figures;
    for (size_t row = 0; row < by_row_.size(); ++row) {
      if (!by_row_[row].empty()) figures.rows.push_back({row, std::move(by_row_[row])});
    }
    figures.busy_ms = busy_ms();
    figures.num_complete = windows_.size();
    if (records_.num_dropped > 0) {
      const int last = records_.operations.empty() ? 1 : std::max(records_.operations.back().step, 1);
      figures.num_complete = std::min(figures.num_complete, static_cast<size_t>(last) - 1);
    }
    return figures;
  }

 private:
  bool is_shared(const comm::LoggedOperation& operation) const {
    return records_.rows.at(operation.row).group_size > 1;
  }
  RowFigures& at(uint32_t row, size_t step) {
    std::vector<RowFigures>& steps = by_row_[row];
    steps.resize(windows_.size());
    return steps[step];
  }

  void add_operation(const comm::LoggedOperation& operation) {
    const auto step = step_of(operation, windows_);
    if (!step || !is_shared(operation)) return;
    RowFigures& figures = at(operation.row, *step);
    figures.calls += 1;
    figures.bytes += static_cast<double>(operation.bytes);
    figures.sent_bytes += static_cast<double>(std::max<int64_t>(operation.sent_intra_bytes, 0) +
                                              std::max<int64_t>(operation.sent_inter_bytes, 0));
    figures.sent_inter_bytes += static_cast<double>(std::max<int64_t>(operation.sent_inter_bytes, 0));
    if (operation.ended_s > 0) figures.ms += kToMs * (operation.ended_s - operation.started_s);
  }

  /// Stretches by where they lie; what is too short to be one (kShortestInterval) with its operation.
  void add_standstill() {
    std::vector<double> short_s, short_wait_s;
    for (const comm::LoggedOperation& operation : records_.operations) {
      short_s.push_back(operation.exposed_s);
      short_wait_s.push_back(operation.exposed_wait_s);
    }
    for (const comm::ExposedInterval& exposed : records_.exposed) {
      short_s[exposed.operation] -= exposed.end_s - exposed.start_s;
      short_wait_s[exposed.operation] -= exposed.wait_s;
      const auto step = window_at(windows_, exposed.start_s);
      const comm::LoggedOperation& operation = records_.operations[exposed.operation];
      if (!step || !is_shared(operation)) continue;
      const double length = std::min(exposed.end_s, windows_[*step].end) - exposed.start_s;
      RowFigures& figures = at(operation.row, *step);
      figures.exposed_ms += kToMs * length;
      figures.late_ms += kToMs * std::min(exposed.wait_s, length);
    }
    for (size_t i = 0; i < short_s.size(); ++i) {
      const comm::LoggedOperation& operation = records_.operations[i];
      const auto step = step_of(operation, windows_);
      if (!step || !is_shared(operation)) continue;
      RowFigures& figures = at(operation.row, *step);
      figures.exposed_ms += kToMs * std::max(short_s[i], 0.0);
      if (operation.exposed_wait_s < 0) figures.late_ms = -1;
      if (figures.late_ms >= 0) figures.late_ms += kToMs * std::max(short_wait_s[i], 0.0);
    }
  }

  std::vector<double> busy_ms() const {
    std::vector<comm::Interval> under_way;
    for (const comm::LoggedOperation& operation : records_.operations) {
      if (is_shared(operation) && operation.ended_s > 0) under_way.push_back({operation.started_s, operation.ended_s});
    }
    under_way = comm::union_of(under_way);
    std::vector<double> busy;
    for (const comm::Interval& window : windows_) {
      double seconds = 0;
      for (const comm::Interval& i : under_way) {
        seconds += std::max(0.0, std::min(i.end, window.end) - std::max(i.start, window.start));
      }
      busy.push_back(kToMs * seconds);
    }
    return busy;
  }

  const comm::RankRecords& records_;
  const std::vector<comm::Interval>& windows_;
  std::vector<std::vector<RowFigures>> by_row_;  // empty: nothing in any step
};

}  // namespace

std::vector<comm::Interval> step_windows(const comm::RankRecords& records, const std::vector<double>& step_seconds) {
  std::vector<comm::Interval> windows(step_seconds.size(), {kNever, 0});
  const auto add = [&](int32_t step, double start, double end) {
    if (step < 1 || static_cast<size_t>(step) > windows.size()) return;
    comm::Interval& window = windows[static_cast<size_t>(step) - 1];
    window.start = std::min(window.start, start);
    window.end = std::max(window.end, end);
  };
  for (const comm::ComputeSpan& span : records.spans) add(span.step, span.start_s, span.end_s);
  for (const comm::LoggedOperation& op : records.operations) add(op.step, op.enqueued_s, op.enqueued_s);
  for (const comm::ExposedInterval& exposed : records.exposed) {
    add(records.operations.at(exposed.operation).step, exposed.start_s, exposed.end_s);
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].start == kNever) windows[i] = {0, 0};
    windows[i].end = std::min(windows[i].end, windows[i].start + step_seconds[i]);
  }
  return windows;
}

RankFigures figures_of(const comm::RankRecords& records, const std::vector<comm::Interval>& windows) {
  return Figures(records, windows).take();
}

}  // namespace sixfold::compare_strategies
