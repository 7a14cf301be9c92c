#include "examples/compare_strategies/tables.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "examples/compare_strategies/step_figures.h"
#include "runtime/train/report.h"

namespace sixfold::compare_strategies {

namespace {

std::string megabytes(const std::optional<double>& bytes) {
  return bytes ? fixed(*bytes / 1e6, 2) : "-";
}

std::string percent(double share) {
  return fixed(100 * share, 1) + "%";
}

/// 0.25, 1, 25.
std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

/// Of the tags: how many sent what the formulas say.
std::string bytes_cell(const StrategyRecord& record) {
  if (!record.counts_links()) return "not known";
  std::set<std::string> tags;
  for (const CommEntry& entry : record.comm) tags.insert(entry.tag);
  if (tags.empty()) return "-";
  const size_t differing = differing_bytes(record).size();
  return differing == 0 ? "equal (" + std::to_string(tags.size()) + " tags)" : std::to_string(differing) + " differ";
}

/// The largest distance from a formula.
std::string memory_cell(const StrategyRecord& record) {
  double worst = 0;
  for (const MemoryEntry& entry : record.memory) worst = std::max(worst, entry.predicted_bytes ? entry.worst : 0);
  return (worst <= kMemoryTolerance ? "within " : "off by ") + percent(worst);
}

void print(std::ostream& out, const Table& table) {
  out << table.title << "\n";
  train::print_columns(out, table.rows, table.num_left);
  out << (table.note.empty() ? "" : table.note + "\n") << "\n";
}

void print_markdown(std::ostream& out, const Table& table) {
  out << table.title << ":\n\n";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    out << "|";
    for (const std::string& cell : table.rows[r]) out << " " << cell << " |";
    out << "\n";
    if (r > 0) continue;
    out << "|";
    for (size_t c = 0; c < table.rows[0].size(); ++c) out << (c < table.num_left ? "---|" : "---:|");
    out << "\n";
  }
  out << (table.note.empty() ? "" : "\n" + table.note + "\n") << "\n";
}

}  // namespace

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string fixed(const std::optional<double>& value, int decimals) {
  return value ? fixed(*value, decimals) : "-";
}

std::string links_text(const Verdict& verdict) {
  std::string text;
  for (const AxisCost& axis : verdict.axes) {
    text += (text.empty() ? "" : ", ") + axis.axis + ": " + link_name(axis.link);
  }
  return text.empty() ? "-" : text;
}

std::string agreement_text(const Placement& placement) {
  const Agreement agreement = placement.agreement();
  if (agreement != Agreement::TooClose) return agreement == Agreement::Agrees ? "agrees" : "disagrees";
  const auto range = [](const PlacementRun& run) {
    return fixed(run.lower_quartile(), 1) + " to " + fixed(run.upper_quartile(), 1);
  };
  return "too close to tell (" + range(placement.first) + " against " + range(placement.second) + " ms)";
}

std::string mesh_text(const parallel::MeshShape& mesh) {
  std::string text;
  const auto add = [&](const char* axis, int size) {
    if (size > 1) text += (text.empty() ? "" : " x ") + std::string(axis) + " " + std::to_string(size);
  };
  add("pp", mesh.pp);
  add("dp", mesh.dp);
  add("sp", mesh.sp);
  add("tp", mesh.tp);
  return text.empty() ? "one rank" : text;
}

Table cost_table(const Comparison& comparison) {
  Table table{"what each strategy costs in a step: " + std::string(kStepRule) + "; peak: of the rank that has most",
              {{"strategy", "mesh", "m", "step ms", "tokens/s", "calls", "sent MB", "exposed ms", "of it late", "share",
                "overlap", "peak MB", "loss", "bytes = formula", "memory"}},
              2};
  for (const StrategyRecord& record : comparison.records) {
    const PrimitiveSum all = record.all_primitives();
    std::string sent = megabytes(all.sent_bytes);
    if (all.sent_inter_bytes.value_or(0) > 0) sent += " (" + megabytes(all.sent_inter_bytes) + " across nodes)";
    table.rows.push_back({record.name, mesh_text(record.mesh), std::to_string(record.micro_batches),
                          fixed(record.median_ms, 1), fixed(record.tokens_per_s, 0), fixed(all.calls, 1), sent,
                          fixed(record.exposed_ms, 2), fixed(record.late_ms, 2), percent(record.exposed_share()),
                          all.calls > 0 ? percent(record.overlap_share()) : "-", megabytes(record.peak_bytes),
                          fixed(record.losses.back(), 5), bytes_cell(record), memory_cell(record)});
  }
  return table;
}

Table strategy_table(const Comparison& comparison, const ComparisonPlan& plan) {
  const std::string& profile = plan.profiles.front().name;
  Table table{
      "what each strategy is made of: calls and MB sent by a rank in a step, and the link that suits each axis "
      "by the verdict on " +
          profile + ", with buckets of " + short_text(plan.options.base.bucket_mb) + " MiB",
      {{"strategy", "mesh", "primitives, calls", "link on " + profile, "sent MB", "formula MB"}},
      4};
  for (size_t r = 0; r < comparison.records.size(); ++r) {
    const StrategyRecord& record = comparison.records[r];
    std::string primitives;
    for (const PrimitiveSum& sum : record.by_primitive()) {
      primitives += (primitives.empty() ? "" : ", ") + sum.primitive + " " + short_text(sum.calls);
    }
    std::optional<double> formula = 0;
    for (const CommEntry& entry : record.comm) formula = sum_of(formula, entry.formula_bytes);
    table.rows.push_back({record.name, mesh_text(record.mesh), primitives.empty() ? "-" : primitives,
                          links_text(comparison.verdicts[r].front()), megabytes(record.all_primitives().sent_bytes),
                          megabytes(formula)});
  }
  return table;
}

Table primitive_table(const Comparison& comparison) {
  Table table{"sent by a rank in a step, by primitive: calls, MB", {{"strategy"}}, 1};
  std::vector<std::string> primitives;
  for (int p = 0; p <= static_cast<int>(comm::Primitive::Send); ++p) {
    const std::string name(comm::primitive_name(static_cast<comm::Primitive>(p)));
    const bool used = std::any_of(comparison.records.begin(), comparison.records.end(), [&](const auto& record) {
      const std::vector<PrimitiveSum> sums = record.by_primitive();
      return std::any_of(sums.begin(), sums.end(), [&](const auto& sum) { return sum.primitive == name; });
    });
    if (used) primitives.push_back(name);
  }
  table.rows[0].insert(table.rows[0].end(), primitives.begin(), primitives.end());
  for (const StrategyRecord& record : comparison.records) {
    std::vector<std::string>& row = table.rows.emplace_back(std::vector<std::string>{record.name});
    for (const std::string& primitive : primitives) {
      std::string& cell = row.emplace_back("-");
      for (const PrimitiveSum& sum : record.by_primitive()) {
        if (sum.primitive == primitive) cell = fixed(sum.calls, 1) + ", " + megabytes(sum.sent_bytes);
      }
    }
  }
  return table;
}

Table memory_table(const Comparison& comparison) {
  Table table{"peak memory, MB, of the rank that has most of each category", {{"strategy"}}, 1};
  for (Category category : kAllCategories) table.rows[0].emplace_back(category_name(category));
  table.rows[0].push_back("total at its peak");
  for (const StrategyRecord& record : comparison.records) {
    std::vector<std::string>& row = table.rows.emplace_back(std::vector<std::string>{record.name});
    for (const MemoryEntry& entry : record.memory) row.push_back(megabytes(entry.peak_bytes));
    row.push_back(megabytes(record.peak_bytes));
  }
  return table;
}

Table axis_table(const Comparison& comparison, size_t profile) {
  Table table{"",
              {{"strategy", "axis", "verdict", "ranks", "messages", "largest MB", "sent MB", "inside ms", "waited",
                "across ms", "waited", "penalty", "exposed here"}},
              3};
  for (size_t r = 0; r < comparison.records.size(); ++r) {
    const Verdict& verdict = comparison.verdicts[r][profile];
    table.title = "communication of each axis on the links of " + verdict.profile +
                  ", its group inside a node or across nodes: ms a step";
    table.note = std::string(kVerdictRule) + " Exposed here: " + kStepRule + ".";
    for (size_t a = 0; a < verdict.axes.size(); ++a) {
      const AxisCost& axis = verdict.axes[a];
      table.rows.push_back({comparison.records[r].name, axis.axis, a == 0 ? verdict.text() : "",
                            std::to_string(axis.group_size), fixed(axis.messages, 1), fixed(axis.largest_mb, 3),
                            fixed(axis.sent_mb, 2), fixed(axis.intra.all_ms, 3), fixed(axis.intra.waited_ms, 3),
                            fixed(axis.inter.all_ms, 3), fixed(axis.inter.waited_ms, 3), fixed(axis.penalty_ms(), 3),
                            fixed(axis.measured_exposed_ms, 2)});
    }
  }
  return table;
}

Table timeline_table(const Comparison& comparison) {
  Table table{
      "one step of each rank, of about the median's length: ms of computations, with the standing still within them; "
      "of "
      "standing still, with data on the way and for late ranks; and in which messages of an axis moved",
      {{"strategy", "rank"}},
      1};
  std::vector<std::string> kinds;
  const auto add_kinds = [&](const auto& names) {
    for (const char* kind : names) {
      const bool used = std::any_of(comparison.records.begin(), comparison.records.end(), [&](const auto& record) {
        return std::any_of(record.timelines.begin(), record.timelines.end(),
                           [&](const auto& timeline) { return timeline.seconds_of(kind) > 0; });
      });
      if (used) kinds.push_back(kind);
    }
  };
  add_kinds(kRankKinds);
  add_kinds(kAxisKinds);
  table.rows[0].insert(table.rows[0].end(), kinds.begin(), kinds.end());
  for (const StrategyRecord& record : comparison.records) {
    for (size_t rank = 0; rank < record.timelines.size(); ++rank) {
      std::vector<std::string>& row = table.rows.emplace_back();
      row = {record.name, std::to_string(rank)};
      for (const std::string& kind : kinds) row.push_back(fixed(1e3 * record.timelines[rank].seconds_of(kind), 2));
    }
  }
  return table;
}

Table placement_table(const Comparison& comparison) {
  Table table{
      "either axis inside the nodes, measured on the emulated links: ms a step in which data were on the way and a "
      "rank "
      "did nothing else",
      {{"strategy", "inside", "across", "step ms", "exposed ms", "quartiles", "of inside", "of across", "verdict"}},
      3};
  table.note = kAgreementRule;
  for (const Placement& placement : comparison.placements) {
    for (const PlacementRun* run : {&placement.first, &placement.second}) {
      const bool is_first = run == &placement.first;
      table.rows.push_back({placement.strategy, run->inside, run->across, fixed(run->step_ms, 1),
                            fixed(run->exposed_ms(), 1),
                            fixed(run->lower_quartile(), 1) + " to " + fixed(run->upper_quartile(), 1),
                            fixed(run->inside_exposed_ms, 1), fixed(run->across_exposed_ms, 1),
                            is_first ? placement.verdict + " inside: " + agreement_text(placement) : ""});
    }
  }
  return table;
}

std::vector<CheckSentence> check_sentences(const Comparison& comparison) {
  using State = CheckSentence::State;
  std::vector<CheckSentence> sentences;
  const auto add = [&](State state, const std::string& text) { sentences.push_back({state, text}); };
  const std::vector<LossDifference> losses = comparison.differing();
  const size_t num_steps = comparison.records.front().losses.size();
  for (const LossDifference& d : losses) {
    const std::string at = " at step " + std::to_string(d.step);
    add(State::Failed, d.is_finite() ? "LOSS DIFFERS: " + d.strategy + " has " + fixed(d.loss, 6) + at +
                                           ", the others " + fixed(d.others, 6)
                                     : "LOSS IS NOT FINITE: " + d.strategy + at);
  }
  if (losses.empty() && comparison.records.size() > 1) {
    const std::string steps = num_steps == 1 ? "the one step" : "all " + std::to_string(num_steps) + " steps";
    add(State::Passed, "losses of " + steps + " are equal: at most " +
                           scientific(largest_loss_distance(comparison.records)) + " from their median (allowed " +
                           scientific(kLossTolerance) + ")");
  }
  bool all_bytes = true, all_memory = true;
  for (const StrategyRecord& record : comparison.records) {
    for (const std::string& text : differing_bytes(record)) {
      all_bytes = false;
      add(State::Failed, "bytes differ: " + record.name + ", " + text);
    }
    for (const std::string& text : differing_memory(record)) {
      all_memory = false;
      add(State::Failed, "memory differs: " + record.name + ", " + text);
    }
  }
  if (!counts_links(comparison.records)) {
    add(State::NotChecked, "bytes in the links are not checked: --comm mpi counts no links");
  } else if (all_bytes) {
    add(State::Passed, "bytes in the links are those of the formulas, for every tag");
  }
  if (all_memory) {
    add(State::Passed, "peaks of memory are within " + percent(kMemoryTolerance) + " of the formulas on every rank");
  }
  return sentences;
}

std::vector<std::string> left_out_sentences(const Comparison& comparison, const ComparisonPlan& plan) {
  std::vector<std::string> sentences;
  for (const auto& [name, reason] : plan.left_out) sentences.push_back("left out: " + name + " (" + reason + ")");
  const std::string reason = no_placements_because(comparison, plan);
  if (!reason.empty()) sentences.push_back("strategies are not run with either axis inside the nodes: " + reason);
  for (const StrategyRecord& record : comparison.records) {
    const size_t num_steps = record.losses.size(), last = record.num_counted + first_counted_step(num_steps);
    if (last == num_steps) continue;
    sentences.push_back("figures of " + record.name + " are of steps up to " + std::to_string(last) + " of " +
                        std::to_string(num_steps) + ": the log of operations was full");
  }
  return sentences;
}

void print_comparison(std::ostream& out, const Comparison& comparison, const ComparisonPlan& plan) {
  std::vector<Table> tables = {cost_table(comparison), primitive_table(comparison), memory_table(comparison)};
  if (!plan.profiles.empty()) tables.push_back(strategy_table(comparison, plan));
  for (size_t p = 0; p < plan.profiles.size(); ++p) tables.push_back(axis_table(comparison, p));
  if (!comparison.placements.empty()) tables.push_back(placement_table(comparison));
  std::erase_if(tables, [](const Table& table) { return table.rows[0].size() == 1; });  // of one rank: no primitives
  for (const Table& table : tables) plan.options.markdown ? print_markdown(out, table) : print(out, table);
  for (const CheckSentence& sentence : check_sentences(comparison)) out << sentence.text << "\n";
  for (const std::string& sentence : left_out_sentences(comparison, plan)) out << sentence << "\n";
  out << std::flush;
}

}  // namespace sixfold::compare_strategies
