#include "examples/compare_strategies/page.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "examples/compare_strategies/charts.h"
#include "examples/compare_strategies/page_style.h"
#include "examples/compare_strategies/page_timeline.h"
#include "examples/compare_strategies/tables.h"

namespace sixfold::compare_strategies {

namespace {

constexpr double kMega = 1e6;

std::string table_html(const Table& table) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const char* cell = r == 0 ? "th" : "td";
    if (r > 0) html += "<tr>";
    for (size_t c = 0; c < table.rows[r].size(); ++c) {
      const char* kind = c < table.num_left ? " class=\"text\"" : "";
      html += "<" + std::string(cell) + kind + ">" + escaped(table.rows[r][c]) + "</" + cell + ">";
    }
    html += r == 0 ? "</tr></thead><tbody>\n" : "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

/// A drawing with what it shows, and its numbers as a table behind a click.
std::string figure_html(const std::string& title, const std::string& text, const std::string& drawing,
                        const Table& table) {
  return "<figure>\n<h2>" + escaped(title) + "</h2>\n<figcaption>" + escaped(text) + "</figcaption>\n" + drawing +
         "<details><summary>The numbers: " + escaped(table.title) + "</summary>\n" + table_html(table) +
         "</details>\n</figure>\n";
}

std::string note_of(const StrategyRecord& record) {
  std::string note = mesh_text(record.mesh);
  if (record.micro_batches > 1) note += ", m " + std::to_string(record.micro_batches);
  return note;
}

std::string step_figure(const Comparison& comparison) {
  const bool knows_late = std::all_of(comparison.records.begin(), comparison.records.end(),
                                      [](const StrategyRecord& record) { return record.late_ms.has_value(); });
  BarChart chart{"steps", "ms", "", {{"computing", "c1"}, {knows_late ? "data on the way" : "in the way", "c2"}}, {}};
  if (knows_late) chart.series.push_back({"waiting for a late rank", "c8"});
  for (const StrategyRecord& record : comparison.records) {
    const double exposed = std::min(record.exposed_ms, record.median_ms);
    const double late = knows_late ? std::min(*record.late_ms, exposed) : 0;
    std::vector<double> parts = {record.median_ms - exposed, exposed - late};
    if (knows_late) parts.push_back(late);
    chart.bars.push_back({record.name,
                          note_of(record),
                          parts,
                          fixed(record.median_ms, 1) + " ms, " + fixed(100 * record.exposed_share(), 0) + "%",
                          {}});
  }
  return figure_html("Time of a step",
                     "Communication is in the way while a rank does nothing else, since data are on the way or since "
                     "another rank has not come to the operation yet. What hides behind computation costs no time and "
                     "is not in here. The share is that of both. As all figures of a step on this page: " +
                         std::string(kStepRule) + ".",
                     bar_chart_html(chart), cost_table(comparison));
}

/// 12, or 7.5 where the ranks' calls are not as many.
std::string calls_text(double calls) {
  return fixed(calls, calls == std::round(calls) ? 0 : 1);
}

std::string bytes_figure(const Comparison& comparison) {
  BarChart chart{"bytes", "MB", "", {}, {}, 2};
  const Table table = primitive_table(comparison);
  for (size_t i = 1; i < table.rows[0].size(); ++i) {
    chart.series.push_back({table.rows[0][i], "c" + std::to_string(i)});
  }
  for (const StrategyRecord& record : comparison.records) {
    const PrimitiveSum all = record.all_primitives();
    Bar& bar = chart.bars.emplace_back();
    bar.label = record.name;
    bar.note = note_of(record);
    const std::string megabytes = all.sent_bytes ? fixed(*all.sent_bytes / kMega, 2) + " MB" : "not known";
    bar.text = megabytes + ", " + calls_text(all.calls) + " calls";
    bar.values.resize(chart.series.size());
    for (const PrimitiveSum& sum : record.by_primitive()) {
      for (size_t i = 0; i < chart.series.size(); ++i) {
        if (chart.series[i].name == sum.primitive) bar.values[i] = sum.sent_bytes.value_or(0) / kMega;
      }
    }
  }
  return figure_html("Sent by each rank in a step",
                     "Bytes counted in the links, by primitive. Every strategy is a composition of the six primitives, "
                     "and of sends between pipeline stages." +
                         std::string(counts_links(comparison.records) ? "" : " MPI counts no links: not known there."),
                     bar_chart_html(chart), table);
}

std::string memory_figure(const Comparison& comparison) {
  BarChart chart{"memory", "MB", "all together at their peak", {}, {}, 2};
  const char* colours[] = {"c1", "c2", "c3", "c5", "c6", "c8"};
  for (size_t c = 0; c < kNumCategories; ++c) {
    chart.series.push_back({std::string(category_name(kAllCategories[c])), colours[c]});
  }
  for (const StrategyRecord& record : comparison.records) {
    Bar& bar = chart.bars.emplace_back();
    bar.label = record.name;
    bar.note = note_of(record);
    bar.text = fixed(record.peak_bytes / kMega, 1) + " MB";
    bar.mark = record.peak_bytes / kMega;
    for (const MemoryEntry& entry : record.memory) bar.values.push_back(entry.peak_bytes / kMega);
  }
  return figure_html("Memory of a rank",
                     "Each category at its own peak, on the rank that has most of it. Peaks do not come at the same "
                     "moment: the line and the number say what all took together at most.",
                     bar_chart_html(chart), memory_table(comparison));
}

std::string axis_figure(const Comparison& comparison, size_t profile, const std::string& name) {
  BarChart chart{"axes-" + std::to_string(profile),
                 "ms",
                 "",
                 {{"waited, group inside a node", "c1"}, {"more, if it lies across nodes", "c2"}},
                 {},
                 3};
  bool after_group = false;
  for (size_t r = 0; r < comparison.records.size(); ++r) {
    const Verdict& verdict = comparison.verdicts[r][profile];
    const bool is_group = verdict.axes.size() > 1;  // gets some space
    for (const AxisCost& axis : verdict.axes) {
      const bool first = &axis == &verdict.axes.front();
      chart.bars.push_back({comparison.records[r].name + ": " + axis.axis,
                            first ? verdict.text() : "",
                            {axis.intra.waited_ms, std::max(0.0, axis.penalty_ms())},
                            fixed(axis.intra.waited_ms, 2) + " or " + fixed(axis.inter.waited_ms, 2) + " ms",
                            {},
                            first && (is_group || after_group)});
    }
    after_group = is_group;
  }
  const std::string links = name == "emulated" ? "the emulated links" : name;
  return figure_html("Which axis belongs inside a node: " + links,
                     "What each step would wait for the messages of an axis on links of this kind, by the cost model: "
                     "messages on the critical path in full, all others by what does not fit behind the computation "
                     "that is there meanwhile. " +
                         std::string(kVerdictRule),
                     bar_chart_html(chart), axis_table(comparison, profile));
}

std::string timeline_figure(const Comparison& comparison) {
  return figure_html(
      "One step, as the ranks spent it",
      "A step of about the median's length, on one time scale for all. Each rank has a strip: above, what "
      "it does; the line below, when messages of an axis move. Where a line runs under compute, "
      "communication is hidden.",
      timelines_html(comparison), timeline_table(comparison));
}

std::string placement_figure(const Comparison& comparison) {
  BarChart chart{"placements", "ms", "", {{"of the axis inside", "c1"}, {"of the axis across", "c2"}}, {}};
  for (const Placement& placement : comparison.placements) {
    for (const PlacementRun* run : {&placement.first, &placement.second}) {
      const bool first = run == &placement.first;
      chart.bars.push_back(
          {placement.strategy + ": " + run->inside + " inside",
           run->across + " across" +
               (run->inside == placement.verdict ? ", as the verdict says: " + agreement_text(placement) : ""),
           {run->inside_exposed_ms, run->across_exposed_ms},
           fixed(run->exposed_ms(), 1) + " ms",
           {},
           first});
    }
  }
  return figure_html("Either axis inside the nodes, measured",
                     "Time of a step in which data were on the way and a rank did nothing else, without waits for late "
                     "ranks, on emulated links, with the ranks laid out in either order. " +
                         std::string(kAgreementRule),
                     bar_chart_html(chart), placement_table(comparison));
}

std::string card_html(const std::string& what, const std::string& number, const std::string& who) {
  return "<div class=\"card\"><div class=\"what\">" + escaped(what) + "</div><div class=\"number\">" + escaped(number) +
         "</div><div class=\"who\">" + escaped(who) + "</div></div>\n";
}

/// The best of several ranks in each respect; none where there is only one rank.
std::string cards_html(const Comparison& comparison) {
  std::vector<const StrategyRecord*> records;
  for (const StrategyRecord& record : comparison.records) {
    if (record.num_ranks > 1) records.push_back(&record);
  }
  if (records.empty()) return "";
  const auto least = [&](auto&& key) {
    return *std::min_element(records.begin(), records.end(), [&](auto* a, auto* b) { return key(*a) < key(*b); });
  };
  const StrategyRecord* quick = least([](const StrategyRecord& r) { return r.median_ms; });
  const StrategyRecord* small = least([](const StrategyRecord& r) { return r.peak_bytes; });
  const StrategyRecord* quiet = least([](const StrategyRecord& r) { return r.all_primitives().sent_bytes; });
  const StrategyRecord* hidden = least([](const StrategyRecord& r) { return r.exposed_share(); });
  const std::optional<double> sent = quiet->all_primitives().sent_bytes;
  return "<p class=\"best\">Of the strategies with communication:</p>\n<div class=\"cards\">\n" +
         card_html("quickest step", fixed(quick->median_ms, 1) + " ms", quick->name) +
         card_html("least memory", fixed(small->peak_bytes / kMega, 1) + " MB", small->name) +
         (counts_links(comparison.records) ? card_html("sends least", fixed(*sent / kMega, 2) + " MB", quiet->name)
                                           : card_html("sends least", "not known", "--comm mpi counts no links")) +
         card_html("least of a step in the way", fixed(100 * hidden->exposed_share(), 1) + "%", hidden->name) +
         "</div>\n";
}

std::string checks_html(const Comparison& comparison) {
  const char* const classes[] = {"good", "bad", "open"};  // by state
  std::string html = "<ul class=\"checks\">";
  for (const CheckSentence& sentence : check_sentences(comparison)) {
    html += "<li class=\"" + std::string(classes[static_cast<size_t>(sentence.state)]) + "\">" +
            escaped(sentence.text) + "</li>\n";
  }
  return html + "</ul>\n";
}

/// "4 ranks (mpi) on 1 node, which take turns on 2 cores".
std::string machine_of(const Comparison& comparison, const ComparisonPlan& plan) {
  const train_gpt::Plan& first = plan.strategies.front().plan;
  std::string text = comparison.ranks + " on " + comparison.nodes.substr(0, comparison.nodes.find(':'));
  if (first.ranks_on_host * first.num_threads > first.num_cores) {
    text += ", which take turns on " + std::to_string(first.num_cores) + (first.num_cores == 1 ? " core" : " cores");
  }
  const std::string& links = plan.options.base.emulate_links;
  return text + (links.empty() ? "" : ", links paced to " + links);
}

std::string lead_of(const Comparison& comparison, const ComparisonPlan& plan) {
  const train_gpt::Options& o = plan.options.base;
  const models::GptConfig& model = plan.model();
  return "The same GPT (" + fixed(static_cast<double>(comparison.records.front().num_parameters) / 1e6, 2) +
         " M parameters: " + std::to_string(model.num_layers) + " layers, dim " + std::to_string(model.dim) + ", " +
         std::to_string(model.num_heads) + " heads), the same " + std::to_string(o.steps) + " steps of " +
         std::to_string(o.global_batch) + " rows of " + std::to_string(model.seq_len) + " tokens, trained by " +
         std::to_string(comparison.records.size()) + (comparison.records.size() == 1 ? " strategy" : " strategies") +
         " on " + machine_of(comparison, plan) + ".";
}

std::string footer_html(const Comparison& comparison, const ComparisonPlan& plan) {
  std::string html = "<footer>\n";
  for (const std::string& sentence : left_out_sentences(comparison, plan)) html += "<p>" + escaped(sentence) + "</p>\n";
  return html +
         "<p>Made by <code>compare_strategies --html</code> of Sixfold. All numbers are in this file as JSON, in the "
         "element <code>#data</code>.</p>\n</footer>\n";
}

/// JSON within a script element: no "</" may be in it.
std::string embedded(const nlohmann::ordered_json& data) {
  std::string text = data.dump();
  for (size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at)) text.replace(at, 2, "<\\/");
  return "<script type=\"application/json\" id=\"data\">" + text + "</script>\n";
}

}  // namespace

std::string page_html(const Comparison& comparison, const ComparisonPlan& plan, const nlohmann::ordered_json& json) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>What each strategy costs</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n" +
      std::string(kPageStyle) + "</style>\n</head>\n<body>\n<main>\n<h1>What each strategy costs</h1>\n";
  html += "<p class=\"lead\">" + escaped(lead_of(comparison, plan)) + "</p>\n";
  html += checks_html(comparison) + cards_html(comparison) + step_figure(comparison);
  html += timeline_figure(comparison);
  html += bytes_figure(comparison) + memory_figure(comparison);
  for (size_t p = 0; p < plan.profiles.size(); ++p) html += axis_figure(comparison, p, plan.profiles[p].name);
  if (!comparison.placements.empty()) html += placement_figure(comparison);
  return html + footer_html(comparison, plan) + embedded(json) + "</main>\n</body>\n</html>\n";
}

}  // namespace sixfold::compare_strategies
