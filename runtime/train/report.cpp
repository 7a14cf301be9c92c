#include "runtime/train/report.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace sixfold::train {

namespace {

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string megabytes(double bytes) {
  return fixed(bytes / 1e6, 3);
}

std::string percent(double share) {
  return fixed(100 * share, 1) + "%";
}

std::string known(bool is_known, const std::string& text) {
  return is_known ? text : "-";
}

std::string primitive_of(const comm::CommRow& row) {
  return std::string(comm::primitive_name(row.primitive)) + (row.backend == "own" ? "" : " (" + row.backend + ")");
}

/// Cells of a line that all tables by tag have, what is summed divided by `parts`.
std::vector<std::string> cells_of(const comm::CommRow& row, double parts, int decimals_of_calls) {
  const auto mb = [&](double bytes) { return megabytes(bytes / parts); };
  const auto ms = [&](double seconds) { return fixed(seconds / parts * 1e3, 3); };
  return {row.tag,
          primitive_of(row),
          comm::recorded_algorithm(row.algorithm).value_or("-"),
          fixed(static_cast<double>(row.calls) / parts, decimals_of_calls),
          mb(static_cast<double>(row.bytes)),
          known(row.counts_links(), mb(static_cast<double>(row.sent_bytes))),
          known(row.counts_links(), mb(row.predicted_sent_bytes)),
          ms(row.seconds),
          ms(row.exposed_seconds),
          known(row.knows_waits, ms(row.exposed_wait_seconds))};
}
/// Of the time of all steps.
std::string share_of_steps(const RunSummary& summary, double seconds) {
  return known(summary.total_step_seconds > 0, percent(seconds / summary.total_step_seconds));
}

std::string counted_steps(const RunSummary& summary) {
  if (summary.num_steps == 1) return "1 step";
  return "all " + std::to_string(summary.num_steps) + " steps, the first included";
}

const std::vector<std::string> kHeadOfCells = {"tag",     "primitive", "algorithm", "calls",      "MB",
                                               "sent MB", "predicted", "ms",        "exposed ms", "late ms"};

}  // namespace

std::vector<MemoryRow> memory_rows(const Memory& memory, const parallel::MemoryPrediction& predicted) {
  std::vector<MemoryRow> rows;
  for (Category category : kAllCategories) {
    MemoryRow& row = rows.emplace_back();
    row.category = category;
    row.peak_bytes = memory.peak_bytes(category);
    if (category == Category::Parameters) row.predicted_bytes = static_cast<double>(predicted.parameters);
    if (category == Category::Gradients) row.predicted_bytes = static_cast<double>(predicted.gradients);
    if (category == Category::Optimizer) row.predicted_bytes = static_cast<double>(predicted.optimizer);
    if (category == Category::Activations && predicted.activations) {
      row.predicted_bytes = static_cast<double>(*predicted.activations);
    }
  }
  return rows;
}

std::vector<TrafficRow> traffic_rows(const std::vector<comm::CommRow>& rows,
                                     const std::vector<parallel::TagTraffic>& predicted, int64_t num_steps) {
  std::vector<TrafficRow> traffic;
  const double steps = static_cast<double>(std::max<int64_t>(num_steps, 1));
  for (const parallel::TagTraffic& formula : predicted) {
    TrafficRow row{formula.tag, 0, formula.payload_bytes, formula.padding_bytes};
    for (const comm::CommRow& counted : rows) {
      if (counted.tag != formula.tag) continue;
      if (!counted.counts_links()) return {};
      row.sent_bytes += static_cast<double>(counted.sent_bytes) / steps;
    }
    traffic.push_back(row);
  }
  return traffic;
}

void print_columns(std::ostream& out, const std::vector<std::vector<std::string>>& rows, size_t num_left) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(widths[c] - row[c].size(), ' ');
      line += (c ? "  " : "") + (c < num_left ? row[c] + blanks : blanks + row[c]);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<comm::CommRow> by_primitive(const std::vector<comm::CommRow>& rows) {
  std::map<std::pair<comm::Primitive, std::string>, comm::CommRow> sums;
  for (const comm::CommRow& row : rows) {
    comm::CommRow& sum = sums[{row.primitive, row.backend}];
    sum.primitive = row.primitive;
    sum.backend = row.backend;
    sum.add(row);
  }
  std::vector<comm::CommRow> list;
  for (const auto& [key, sum] : sums) list.push_back(sum);
  return list;
}

CommTotals comm_totals(const RunSummary& summary) {
  CommTotals totals;
  totals.seconds = summary.comm_busy_seconds;
  for (const comm::CommRow& row : summary.comm) {
    totals.exposed_seconds += row.exposed_seconds;
    totals.exposed_wait_seconds += row.exposed_wait_seconds;
    totals.sent_intra_bytes += static_cast<double>(row.sent_bytes - row.sent_inter_bytes);
    totals.sent_inter_bytes += static_cast<double>(row.sent_inter_bytes);
    totals.counts_links &= row.counts_links();
    totals.knows_inter &= row.knows_inter;
    totals.knows_waits &= row.knows_waits;
  }
  return totals;
}

double overlap_share(double exposed_seconds, double seconds) {
  // Calls that issue and poll take time beside the operations' own.
  return seconds > 0 ? std::clamp(1 - exposed_seconds / seconds, 0.0, 1.0) : 1;
}

void print_comm_table(std::ostream& out, const RunSummary& summary) {
  if (summary.num_ranks == 1) {
    out << "communication: none (one rank)\n";
    return;
  }
  const double steps = static_cast<double>(std::max<int64_t>(summary.num_steps, 1));
  std::vector<std::vector<std::string>> rows = {kHeadOfCells};
  rows[0].insert(rows[0].end(), {"algbw", "busbw", "share"});
  for (const comm::CommRow& row : summary.comm) {
    const double algbw = row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds / 1e9 : 0;
    std::vector<std::string>& cells = rows.emplace_back(cells_of(row, steps, 2));
    cells.push_back(fixed(algbw, 2));
    cells.push_back(fixed(algbw * comm::busbw_factor(row.primitive, row.group_size), 2));
    cells.push_back(share_of_steps(summary, row.exposed_seconds));
  }
  out << "communication of rank 0: means over " << counted_steps(summary) << " (mean "
      << fixed(summary.mean_step_seconds() * 1e3, 3) << " ms, median " << fixed(summary.median_step_seconds * 1e3, 3)
      << " ms); share: exposed part of the mean step; algbw, busbw in GB/s\n";
  print_columns(out, rows, 3);
}

void print_outside_table(std::ostream& out, const RunSummary& summary) {
  if (summary.comm_outside.empty()) return;
  std::vector<std::vector<std::string>> rows = {kHeadOfCells};
  for (const comm::CommRow& row : summary.comm_outside) rows.push_back(cells_of(row, 1, 0));
  out << "outside the steps (start-up, validation): sums over the run, in none of the means\n";
  print_columns(out, rows, 3);
}

void print_primitive_table(std::ostream& out, const RunSummary& summary) {
  if (summary.num_ranks == 1) return;
  const double steps = static_cast<double>(std::max<int64_t>(summary.num_steps, 1));
  const auto mb = [&](double bytes) { return megabytes(bytes / steps); };
  const auto ms = [&](double seconds) { return fixed(seconds / steps * 1e3, 3); };
  std::vector<std::vector<std::string>> rows = {
      {"primitive", "calls", "MB", "intra MB", "inter MB", "ms", "exposed ms", "late ms", "overlap"}};
  for (const comm::CommRow& row : by_primitive(summary.comm)) {
    const bool knows_links = row.counts_links() && row.knows_inter;
    rows.push_back({primitive_of(row), fixed(static_cast<double>(row.calls) / steps, 2),
                    mb(static_cast<double>(row.bytes)),
                    known(knows_links, mb(static_cast<double>(row.sent_bytes - row.sent_inter_bytes))),
                    known(knows_links, mb(static_cast<double>(row.sent_inter_bytes))), ms(row.seconds),
                    ms(row.exposed_seconds), known(row.knows_waits, ms(row.exposed_wait_seconds)),
                    percent(overlap_share(row.exposed_seconds, row.seconds))});
  }
  const CommTotals totals = comm_totals(summary);
  out << "by primitive, means over the same steps (sent inside and between nodes; late: exposed, waiting for ranks "
         "that "
         "came late)\n";
  print_columns(out, rows, 1);
  out << "all: communication under way for " << ms(totals.seconds) << " ms a step, exposed "
      << ms(totals.exposed_seconds) << " ms = " << share_of_steps(summary, totals.exposed_seconds)
      << " of the mean step (overlap " << percent(overlap_share(totals.exposed_seconds, totals.seconds)) << ")";
  if (totals.knows_waits) out << ", waited for late ranks " << ms(totals.exposed_wait_seconds) << " ms";
  if (totals.counts_links && totals.knows_inter) {
    out << "; sent " << mb(totals.sent_intra_bytes) << " MB inside nodes, " << mb(totals.sent_inter_bytes)
        << " MB between nodes";
  }
  out << "\n";
}

void print_traffic_table(std::ostream& out, const RunSummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"tag", "sent MB", "formula", "padding"}};
  for (const TrafficRow& row : summary.traffic) {
    rows.push_back({row.tag, megabytes(row.sent_bytes), megabytes(row.payload_bytes), megabytes(row.padding_bytes)});
  }
  out << "sent by rank 0 per step for " << summary.strategy << ", beside the formula\n";
  print_columns(out, rows, 1);
}

void print_memory_table(std::ostream& out, const RunSummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"memory", "peak MB", "predicted MB"}};
  for (const MemoryRow& row : summary.memory) {
    rows.push_back({std::string(category_name(row.category)), megabytes(static_cast<double>(row.peak_bytes)),
                    row.predicted_bytes ? megabytes(*row.predicted_bytes) : "-"});
  }
  if (summary.resident_bytes > 0) {
    rows.push_back({"process", megabytes(static_cast<double>(summary.resident_bytes)), "-"});
  }
  out << "memory of rank 0 at each category's peak\n";
  print_columns(out, rows, 1);
}

void print_pipeline(std::ostream& out, const PipelineSummary& pipeline) {
  const parallel::PipelineShape& shape = pipeline.shape;
  out << "pipeline: " << parallel::pipeline_kind_name(shape.kind) << ", " << shape.num_stages << " stages x "
      << shape.virtual_stages << (shape.virtual_stages == 1 ? " part, " : " parts, ") << shape.num_micro_batches
      << " micro-batches; bubble " << known(pipeline.bubble.has_value(), percent(pipeline.bubble.value_or(0)))
      << ", by the formula " << percent(parallel::bubble_formula(shape)) << "\n";
}

void print_speed(std::ostream& out, const RunSummary& summary) {
  const double gflops = summary.tokens_per_second * summary.flops_per_token / 1e9;
  out << "speed: " << fixed(summary.tokens_per_second, 0) << " tokens/s, " << fixed(summary.step_seconds * 1e3, 1)
      << " ms a step (mean" << (summary.num_steps > 1 ? " without the first" : "") << "), " << fixed(gflops, 1)
      << " GFLOP/s";
  if (summary.gemm_gflops > 0) {
    out << " = " << percent(summary.mfu()) << " of the " << fixed(summary.gemm_gflops, 1)
        << " GFLOP/s that matrix products reach here";
  }
  out << " (" << summary.num_ranks << " x " << summary.num_threads << " threads)\n";
}

}  // namespace sixfold::train
