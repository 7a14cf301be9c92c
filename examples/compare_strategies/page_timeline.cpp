#include "examples/compare_strategies/page_timeline.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "examples/compare_strategies/charts.h"
#include "examples/compare_strategies/tables.h"

namespace sixfold::compare_strategies {

namespace {

constexpr double kTimelineWidth = 1000;  // of a drawing, in its own units
constexpr double kNarrowest = 0.8;       // what is shorter would not be seen
constexpr int kTop = 0, kTopHeight = 15, kBelow = 18, kBelowHeight = 6;

struct Kind {
  std::string name, colour, legend;
};
// What is drawn later covers what is there: standing still happens within forwards and backwards.
const std::vector<Kind> kOnTop = {{"forward", "c1", "forward"},
                                  {"backward", "c5", "backward"},
                                  {"optimizer", "c3", "optimizer"},
                                  {"in the way", "c2", "data on the way"},
                                  {"late", "c8", "waiting for a late rank"}};
const std::vector<Kind> kBelowThat = {{"dp", "c7", "dp"}, {"dp x sp", "c7", "dp"}, {"hsdp", "c10", "hsdp"},
                                      {"pp", "c9", "pp"}, {"sp", "c6", "sp"},      {"tp", "c4", "tp"}};

bool is_used(const Comparison& comparison, const std::string& kind) {
  for (const StrategyRecord& record : comparison.records) {
    for (const RankTimeline& timeline : record.timelines) {
      if (timeline.track(kind) != nullptr) return true;
    }
  }
  return false;
}

std::string legend_html(const Comparison& comparison, const std::string& title, const std::vector<Kind>& kinds) {
  std::string html = "<ul class=\"legend\"><li class=\"title\">" + title + "</li>";
  std::set<std::string> names;
  for (const Kind& kind : kinds) {
    if (!is_used(comparison, kind.name) || !names.insert(kind.legend).second) continue;
    // Where late ranks are not known, they are in it.
    const bool is_both = kind.name == "in the way" && !counts_links(comparison.records);
    html += "<li><span class=\"swatch " + kind.colour + "\"></span>" + (is_both ? kind.name : kind.legend) + "</li>";
  }
  return html + "</ul>\n";
}

std::string units(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

/// All rectangles of a track as one path.
std::string path_of(const Track& track, const std::string& colour, double scale, int y, int height) {
  std::string d;
  for (const comm::Interval& interval : track.intervals) {
    const std::string width = units(std::max(scale * interval.length(), kNarrowest));
    d += "M" + units(scale * interval.start) + " " + std::to_string(y) + "h" + width + "v" + std::to_string(height) +
         "h-" + width + "z";
  }
  return "<path class=\"" + colour + "\" d=\"" + d + "\"><title>" + track.kind + "</title></path>";
}

std::string strip_html(const StrategyRecord& record, size_t rank, double scale) {
  const RankTimeline& timeline = record.timelines[rank];
  std::string data, paths;
  const auto draw = [&](const std::vector<Kind>& kinds, int y, int height) {
    for (const Kind& kind : kinds) {
      const Track* track = timeline.track(kind.name);
      if (track == nullptr) continue;
      paths += path_of(*track, kind.colour, scale, y, height);
      std::string attribute = kind.name;
      std::replace(attribute.begin(), attribute.end(), ' ', '-');
      data += " data-" + attribute + "=\"" + number_text(1e3 * timeline.seconds_of(kind.name)) + "\"";
    }
  };
  draw(kOnTop, kTop, kTopHeight);
  draw(kBelowThat, kBelow, kBelowHeight);
  return "<div class=\"strip\" data-label=\"" + escaped(record.name) + "\" data-rank=\"" + std::to_string(rank) + "\"" +
         data + "><span class=\"rank\">" + std::to_string(rank) +
         "</span><div class=\"drawing\"><svg viewBox=\"0 0 1000 24\" preserveAspectRatio=\"none\" role=\"img\" "
         "aria-label=\"rank " +
         std::to_string(rank) + " of " + escaped(record.name) + "\">" + paths + "</svg></div></div>\n";
}

double longest_s(const Comparison& comparison) {
  double longest = 0;
  for (const StrategyRecord& record : comparison.records) {
    for (const RankTimeline& timeline : record.timelines) longest = std::max(longest, timeline.end);
  }
  return longest;
}

}  // namespace

std::string timelines_html(const Comparison& comparison) {
  const std::vector<double> ticks = axis_ticks(1e3 * longest_s(comparison));
  const double scale = kTimelineWidth * 1e3 / ticks.back();
  std::string html = "<div id=\"colours-of-timelines\">\n" + legend_html(comparison, "each rank:", kOnTop);
  html += legend_html(comparison, "messages of:", kBelowThat) + "</div>\n<div class=\"timelines\" id=\"timelines\">\n";
  for (const StrategyRecord& record : comparison.records) {
    html += "<div class=\"timeline\"><div class=\"label\">" + escaped(record.name) + " <small>" +
            mesh_text(record.mesh) + ", step " + std::to_string(record.timeline_step) + "</small></div>\n";
    for (size_t rank = 0; rank < record.timelines.size(); ++rank) html += strip_html(record, rank, scale);
    html += axis_html(ticks, "ms") + "</div>\n";
  }
  return html + "</div>\n";
}

}  // namespace sixfold::compare_strategies
